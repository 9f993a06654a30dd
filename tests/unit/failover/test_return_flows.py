"""The flow that a failback makes: where names tell what came from where, and where no running flow would have to do otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mirrorlake.config import loads
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.failover import derive_return_flow


def settings(*flows: dict[str, Any]) -> MirrorConfig:
    clusters = {alias: {"bootstrap_servers": f"{alias}:1"} for alias in ("east", "central", "west")}
    return loads(json.dumps({"lake": {"root": "./lake"}, "clusters": clusters, "flows": list(flows)}))


def flow(source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"source": source, "target": target, "topics": "orders, clicks.*", **more}


def test_it_has_the_name_topics_groups_and_separator_that_it_would_have_in_the_settings() -> None:
    config = settings(
        flow("east", "central", exclude_topics="clicks.tmp", groups="g.*", policy={"name": "default", "separator": "_"})
    )
    made = derive_return_flow(config.flow("east->central"))
    assert made is not None
    found = config.with_flow(made)
    assert found is not None
    home = found.flow("central->east")
    assert [home.carries(name) for name in ("orders", "clicks.eu", "clicks.tmp", "east_orders", "else")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert home.remote_topic("orders") == "central_orders"
    assert (home.group_selection.matches("g1"), home.group_selection.matches("other")) == (True, False)
    assert found.flow("east->central") == config.flow("east->central"), "the flow itself does what it did"
    assert (found.sources, config.sources) == (("central", "east"), ("east",)), "the settings stay as they are"


@pytest.mark.parametrize("policy", ["identity", {"template": "all.{topic}"}])
def test_where_names_do_not_tell_only_a_person_can_say_how(policy: Any) -> None:
    assert derive_return_flow(settings(flow("east", "central", policy=policy)).flow("east->central")) is None


def test_a_flow_of_that_name_is_not_made_twice() -> None:
    config = settings(flow("east", "central"), flow("west", "central", name="central->east"))
    made = derive_return_flow(config.flow("east->central"))
    assert made is not None
    assert config.with_flow(made) is None
