"""Law G: settings of a topic that several flows write, or that goes both ways, come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import pytest

from mirrorlake.config.schema import MirrorConfig
from mirrorlake.kafka import TopicState
from mirrorlake.model.plan import Change
from mirrorlake.topics.setup import made_once
from mirrorlake.topics.topic_plan import BothEnds, led_by_others, topic_plan
from tests.builders import mirror_config

Place = tuple[str, str]


class Clusters:
    """Topics of all clusters by the settings that they make, and what mirrorlake has made of them."""

    def __init__(self, config: MirrorConfig, topics: Mapping[Place, Mapping[str, str]]) -> None:
        self.config = config
        self.topics = {place: dict(settings) for place, settings in topics.items()}
        self.copied: dict[Place, dict[str, str]] = {}

    def copied_configs(self, alias: str) -> dict[str, dict[str, str]]:
        return {name: held for (where, name), held in self.copied.items() if where == alias}

    def plan(self) -> list[Change]:
        return made_once(change for flow in self.config.flows for change in self._plan(flow))

    def _plan(self, flow: Any) -> tuple[Change, ...]:
        def of(alias: str) -> dict[str, dict[str, str]]:
            return {name: settings for (where, name), settings in self.topics.items() if where == alias}

        def states(found: Mapping[str, Any]) -> dict[str, TopicState]:
            return {name: TopicState(name=name, topic_id=name, partitions=1) for name in found}

        source = {name: settings for name, settings in of(flow.source).items() if flow.carries(name)}
        target = of(flow.target)
        remote = {name: target[name] for name in map(flow.remote_topic, source) if name in target}
        ends = BothEnds(
            source=states(source),
            source_configs=source,
            remote=states(remote),
            remote_configs=remote,
            target_names=tuple(target),
        )
        led = led_by_others(flow, self.config.flows, names=lambda other: of(other.source))
        return topic_plan(flow, ends, cast("Any", self), beside=self.config.flows, led=led).changes

    def apply(self) -> list[Change]:
        """Carry out what is planned, as `carry_out` and `audit` do; return it."""
        changes = self.plan()
        for change in changes:
            place = change.where, change.name
            held = self.copied.setdefault(place, {})
            if change.action == "create":
                assert place not in self.topics, "made once"
                self.topics[place] = dict(change.after["configs"])
                held |= change.after["configs"]
            elif change.action == "set_configs":
                self.topics[place] |= change.after
                held |= change.after
            elif change.action == "reset_configs":
                for key in change.after:
                    self.topics[place].pop(key)
                    held.pop(key, None)
        return changes

    def rest(self) -> None:
        """Apply until nothing is planned: a topic that one flow made may not be as the flow that leads wants it."""
        for _ in range(3):
            if not self.apply():
                return
        counts = Counter(str(change) for change in self.plan())
        raise AssertionError(f"law G: it never comes to rest: {counts}")


def both_ways(**east: Any) -> Clusters:
    flow = {"topics": "orders", "policy": "identity"}
    config = mirror_config(
        {"source": "east", "target": "west", **flow}, {"source": "west", "target": "east", **flow, **east}
    )
    return Clusters(config, {("east", "orders"): {"retention.ms": "1"}})


@pytest.mark.law("G")
def test_law_g_regions_that_merge_come_to_rest_at_the_settings_of_the_first() -> None:
    flows = [
        {"source": source, "target": "central", "topics": "orders", "policy": {"template": "all.{topic}"}}
        for source in ("east", "west")
    ]
    clusters = Clusters(
        mirror_config(*flows), {("east", "orders"): {"retention.ms": "1"}, ("west", "orders"): {"segment.ms": "7"}}
    )
    clusters.rest()
    assert clusters.topics["central", "all.orders"] == {"retention.ms": "1"}
    clusters.topics["west", "orders"] |= {"retention.ms": "2"}
    assert clusters.plan() == []
    clusters.topics["east", "orders"] = {}
    clusters.rest()
    assert clusters.topics["central", "all.orders"] == {}


def test_settings_that_go_one_way_only_follow_their_source_wherever_its_flow_stands() -> None:
    flow = {"topics": "orders", "policy": "identity"}
    first = {"source": "west", "target": "east", **flow, "sync": {"configs": False}}
    config = mirror_config(first, {"source": "east", "target": "west", **flow})
    clusters = Clusters(config, {("east", "orders"): {"retention.ms": "1"}, ("west", "orders"): {"retention.ms": "9"}})
    clusters.rest()
    assert clusters.topics["east", "orders"] == clusters.topics["west", "orders"] == {"retention.ms": "1"}


@pytest.mark.law("G")
def test_law_g_an_override_of_one_way_stays_on_its_target() -> None:
    clusters = both_ways(sync={"configs_override": {".*": {"retention.ms": "5"}}})
    clusters.rest()
    assert clusters.topics["east", "orders"] == {"retention.ms": "5"}
    assert clusters.topics["west", "orders"] == {"retention.ms": "1"}
