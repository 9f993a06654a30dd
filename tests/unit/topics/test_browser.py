"""The topic browser on values: what each flow does with a topic, where remote topics come from, sizes and rates."""

from __future__ import annotations

import doctest
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from mirrorlake.config import loads
from mirrorlake.errors import ClusterUnreachable, NotAuthorized, UsageError
from mirrorlake.kafka import Committed, PartitionState, TopicSetting
from mirrorlake.model.flow import TopicPartition
from mirrorlake.topics import TopicBrowser, topic_list
from tests.builders import NOON
from tests.kit.memory_cluster import MemoryCluster, MemoryGroups

ORDERS = TopicPartition("orders", 0)

CONFIG = loads("""
lake: {root: ./lake}
clusters:
  east: {bootstrap_servers: "e:1", never_leave: "pii.*"}
  west: {bootstrap_servers: "w:1"}
  central: {bootstrap_servers: "c:1"}
flows:
  - {source: east, target: central, topics: "orders, pii.*, tmp.*", exclude_topics: "tmp.*"}
  - {source: west, target: central, topics: ".*", policy: {template: "all.{topic}"}}
""")


@dataclass
class Shelf:
    """Topics by name with the spans of their partitions, None for one without a leader."""

    topics: dict[str, list[tuple[int, int] | None]]
    configs: dict[str, dict[str, str]] = field(default_factory=dict)

    def layout(self) -> dict[str, tuple[PartitionState, ...]]:
        return {
            name: tuple(
                PartitionState(
                    partition=n, leader=None if span is None else 1, replicas=(1, 2), isr=(1, 2) if span else (2,)
                )
                for n, span in enumerate(spans)
            )
            for name, spans in self.topics.items()
        }

    def settings(self, names: Collection[str]) -> dict[str, dict[str, TopicSetting]]:
        return {
            name: {
                key: TopicSetting(value=value, is_own=key != "segment.ms") for key, value in self.configs[name].items()
            }
            for name in names
            if name in self.configs
        }

    def offset_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        found = {tp: self.topics[tp.topic][tp.partition] for tp in partitions}
        assert None not in found.values(), "a partition without a leader would be waited for"
        return {tp: span for tp, span in found.items() if span is not None}


def browser(
    alias: str, shelf: Shelf, upstream: dict[str, list[str]] | None = None, *, seconds: int = 0
) -> TopicBrowser:
    def names_of(source: str) -> list[str]:
        if upstream is None or source not in upstream:
            raise ClusterUnreachable(f"{source} does not answer")
        return upstream[source]

    now = NOON + timedelta(seconds=seconds)
    return TopicBrowser(alias, shelf, flows=CONFIG.flows, names_of=names_of, now=lambda: now)


def test_each_topic_says_where_it_is_mirrored_or_why_not() -> None:
    names = ["orders", "pii-names", "tmp.x", "clicks", "__consumer_offsets"]
    found = browser("east", Shelf({name: [(0, 5)] for name in names})).topics()
    assert {line.topic: line.mirrored for line in found} == {
        "orders": "central: east.orders",
        "pii-names": "east->central: never_leave keeps it on its cluster",
        "tmp.x": "east->central: exclude_topics excludes it",
        "clicks": "east->central: no pattern of the flow matches",
    }
    assert (found.hidden, [line.is_mirrored for line in found]) == (1, [True, False, False, False])
    assert len(browser("east", Shelf({name: [] for name in names})).topics(internal=True)) == 5


def test_a_remote_topic_names_its_flow_also_where_only_the_source_can_tell() -> None:
    shelf = Shelf({"east.orders": [(0, 5)], "all.clicks": [(0, 5)], "own": [(0, 5)]})
    found = browser("central", shelf, {"east": ["orders"], "west": ["clicks"]}).topics()
    assert {line.topic: line.mirrored for line in found} == {
        "east.orders": "remote topic of east->central, from east: orders",
        "all.clicks": "remote topic of west->central, from west: clicks",
        "own": "no flow reads this cluster",
    }
    away = browser("central", shelf).topics()
    assert [line.mirrored.startswith("remote topic") for line in away] == [True, False, False], (
        "names tell what they can"
    )


def test_sizes_and_rates_are_of_what_is_known() -> None:
    shelf = Shelf({"orders": [(3, 10), (0, 5)], "odd": [(0, 5), None]}, {"orders": {"cleanup.policy": "compact"}})
    before = browser("east", shelf).topics()
    assert [(line.records, line.under_replicated, line.kept) for line in before] == [
        (12, 0, "compacted"),
        (None, 1, ""),
    ]
    assert "! 1 partition with too few replicas in sync" in before.to_text()
    shelf.topics["orders"][0] = (3, 30)
    later = browser("east", shelf, seconds=10).topics()
    assert [line.records_per_s for line in later.after(before)] == [2.0, 0.0]
    shelf.topics["orders"][0] = (0, 1)
    fell = browser("east", shelf, seconds=20).topics()
    assert fell.after(later)[0].records_per_s is None, "deleted and created again"


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}, "7 d"),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, "for ever"),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "90000", "retention.bytes": "1000"},
            "compacted, 1 min 30 s, 1.0 kB",
        ),
    ],
)
def test_how_long_records_are_kept_is_said_in_words(configs: dict[str, str], kept: str) -> None:
    [line] = browser("east", Shelf({"orders": [(0, 1)]}, {"orders": configs})).topics()
    assert line.kept == kept


def test_the_page_of_a_topic_has_partitions_settings_and_readers() -> None:
    shelf = Shelf({"orders": [(3, 10), None]}, {"orders": {"retention.ms": "1000", "segment.ms": "7"}})
    readers = MemoryCluster().groups
    for group, positions in (("billing", {ORDERS: Committed(4)}), ("gone", {ORDERS: Committed(1)}), ("other", {})):
        readers.commit(group, positions)
    page = browser("east", shelf).page("orders", lambda: readers)
    assert [(p.earliest, p.end, p.leader) for p in page.partitions] == [(3, 10, 1), (None, None, None)]
    assert page.settings == {"retention.ms": "1000"}, "its own, and no default"
    assert page.readers is not None
    assert [(one.group, one.offset_lag) for one in page.readers] == [("gone", 7), ("billing", 6)], (
        "expired ones are gone"
    )
    text = page.to_text()
    for word in ("billing", "central: east.orders", "retention.ms", "none"):
        assert word in text
    assert page.as_dict()["line"]["topic"] == "orders"
    with pytest.raises(UsageError, match="no topic 'nobody'"):
        browser("east", shelf).page("nobody", lambda: None)


def test_groups_that_may_not_be_seen_hide_nothing_else() -> None:
    def refused() -> MemoryGroups:
        raise NotAuthorized("DESCRIBE GROUP is missing")

    page = browser("east", Shelf({"orders": [(0, 1)]})).page("orders", refused)
    assert page.readers is None
    assert "its readers are not known: DESCRIBE GROUP is missing" in page.to_text()


def test_the_examples_are_true() -> None:
    assert doctest.testmod(topic_list).failed == 0
