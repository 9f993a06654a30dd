"""Topic settings: what is copied, what is the target's own, and what goes back to its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema.sync import SyncConfig
from mirrorlake.model.topic_configs import DEFAULT_EXCLUDE_CONFIGS, RULES, given_up
from tests.builders import mirror_config

DOCS = Path(__file__).parents[3] / "docs"


def sync_of(text: str = "{}") -> SyncConfig:
    return mirror_config({"topics": ".*", "sync": yaml.safe_load(text)}).flows[0].sync


def test_the_default_exclusion_is_mirrormakers_and_the_rules_agree() -> None:
    sync = sync_of().config_sync
    excluded = {name for name in RULES if sync.excluded(name)}
    assert excluded == {name for name, rule in RULES.items() if rule.sync_class == "never"}
    assert len(DEFAULT_EXCLUDE_CONFIGS.expressions) == len(excluded)
    assert all(rule.reason and not rule.reason.endswith(".") for rule in RULES.values())


def test_what_the_source_sets_is_copied_by_class() -> None:
    source = {
        "retention.ms": "1",
        "min.insync.replicas": "2",
        "remote.storage.enable": "true",
        "of.a.newer.broker": "x",
    }
    assert sync_of().config_sync.wanted("t", source) == {"retention.ms": "1", "of.a.newer.broker": "x"}
    assert sync_of("{configs: false}").config_sync.wanted("t", source) == {}
    own = sync_of("{configs_exclude: ['retention.*']}").config_sync
    assert own.wanted("t", source) == {"min.insync.replicas": "2", "of.a.newer.broker": "x"}, "it replaces the list"


def test_an_override_beats_source_and_exclusion_and_later_lines_beat_earlier_ones() -> None:
    sync = sync_of('{configs_override: {".*": {min.insync.replicas: 2, retention.ms: 5}, "pay.*": {retention.ms: 7}}}')
    assert sync.config_sync.wanted("orders", {"retention.ms": "1"}) == {"retention.ms": "5", "min.insync.replicas": "2"}
    assert sync.config_sync.wanted("pay", {}) == {"retention.ms": "7", "min.insync.replicas": "2"}
    assert sync.config_sync.rule("pay", "retention.ms").sync_class == "overridden"


names = st.sampled_from([*RULES, "of.a.newer.broker"])
settings = st.dictionaries(names, st.sampled_from(["1", "2"]), max_size=8)


@pytest.mark.law("G")
@given(source=settings, actual=settings, copied=settings)
def test_nobody_elses_setting_is_ever_reset(
    source: dict[str, str], actual: dict[str, str], copied: dict[str, str]
) -> None:
    sync = sync_of().config_sync
    wanted = sync.wanted("t", source)
    reset = given_up(actual, wanted=wanted, copied=copied, rule=lambda name: sync.rule("t", name))
    for name in reset:
        assert name not in wanted
        assert copied[name] == actual[name], "only what mirrorlake made, and nobody has changed since"
        assert sync.rule("t", name).sync_class != "never"
    after = {name: value for name, value in (actual | wanted).items() if name not in reset}
    assert given_up(after, wanted=wanted, copied=copied, rule=lambda name: sync.rule("t", name)) == (), "law G"


def test_the_page_holds_the_table_of_the_code() -> None:
    """The page has one row per class and reason; the code lists one row per setting."""
    page = (DOCS / "configuration-and-acls.md").read_text(encoding="utf-8")
    rows = [row.split(" | ") for row in re.findall(r"^\| ((?:synced|overridden|never) \| `.*) \|$", page, re.MULTILINE)]
    on_page = {(name, kind, why) for kind, names, why in rows for name in names.split(", ")}
    assert on_page == {(f"`{name}`", rule.sync_class, rule.reason) for name, rule in RULES.items()}
