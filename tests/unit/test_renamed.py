"""Each name of the last release that has changed still works, and warns with the name that took its place."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from types import SimpleNamespace

import pytest

import mirrorlake as ml
from mirrorlake import errors
from mirrorlake.config import loads
from mirrorlake.lag import Lag
from mirrorlake.lag.partition_status import STATES
from mirrorlake.render import document

SETTINGS = """
lake: {{root: /lake}}
clusters: {{a: {{bootstrap_servers: "a:9092"}}, b: {{bootstrap_servers: "b:9092"}}}}
flows: [{{source: a, target: b, topics: orders}}]
maintenance: {{{}}}
"""


@pytest.mark.parametrize(
    ("old", "new"), [("InHole", "NoRecord"), ("Landing", "LandResult"), ("Republishing", "RepublishResult")]
)
def test_a_class_under_its_old_name(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"`mirrorlake.{old}` is now `mirrorlake.{new}`"):
        assert getattr(ml, old) is getattr(ml, new)
    assert old not in ml.__all__


def test_an_error_under_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="`mirrorlake.errors.ClusterIdMismatch`"):
        assert getattr(errors, "OtherCluster") is errors.ClusterIdMismatch  # noqa: B009  mypy does not know it
    with pytest.raises(AttributeError, match="no attribute 'NoSuchError'"):
        getattr(errors, "NoSuchError")  # noqa: B009


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (ml.FlowHandle, "held", "lost_topics"),
        (ml.Mirror, "held", "lost_topics"),
        (ml.Mirror, "so_far", "progress"),
        (ml.Mirror, "choose", "resolve_lost_topic"),
        (Lag, "asked_over", "query_over"),
        (Lag, "asked_rpo", "query_rpo"),
        (Lag, "asked_latency", "query_latency"),
    ],
)
def test_a_method_under_its_old_name(kind: type, old: str, new: str) -> None:
    one = SimpleNamespace(**{new: lambda *given, **options: (given, options)})
    assert callable(getattr(kind, new))
    with pytest.warns(DeprecationWarning, match=f"`{old}` is now `{new}`") as warned:
        assert getattr(kind, old)(one, "east", once=True) == (("east",), {"once": True})
    assert warned[0].filename == __file__, "the warning names the caller's line"


def test_a_setting_under_its_old_name() -> None:
    old = loads(SETTINGS.format("patience: 2d"))
    assert old.maintenance.max_wait_for_flows == timedelta(days=2)
    assert old.superseded_settings == (("maintenance.patience", "max_wait_for_flows"),)
    with pytest.raises(errors.ConfigError, match="'patience' beside 'max_wait_for_flows'"):
        loads(SETTINGS.format("patience: 2d, max_wait_for_flows: 1d"))


def test_a_state_equals_its_old_word_and_is_written_as_the_new_one() -> None:
    state = next(word for word in STATES if word.startswith("caught"))
    for kept in (state, copy.deepcopy(state)):
        with pytest.warns(DeprecationWarning, match="`in_step` is now `caught_up`"):
            assert kept == "in_step"
        assert kept == "caught_up"
        assert kept != "behind"
    assert json.dumps(document({"state": state})) == '{"state": "caught_up"}'
