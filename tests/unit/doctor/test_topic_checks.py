"""What of a source is not landed yet is told from one snapshot of it, without brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.context import Context
from mirrorlake.doctor import Findings, examine
from mirrorlake.errors import NotAuthorized
from mirrorlake.kafka import TopicSetting, TopicState
from mirrorlake.lake import METADATA, KnownTopic
from mirrorlake.lake.metadata import topic_row
from mirrorlake.model.flow import TopicPartition
from tests.clusters import MemoryCluster
from tests.lakes import LANDED_AT, Relay, rows
from tests.unit.doctor.kit import context_of, settings

TOPICS = ("orders", "clicks", "idle")


class Source(MemoryCluster):
    """It counts the requests for offsets."""

    asked = 0

    def broker_count(self) -> int:
        return 1

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += 1
        return super().last_stable_offsets(partitions)

    @property
    def topic_metadata(self) -> Any:
        keeps = {"retention.ms": TopicSetting(value="-1", is_own=False)}
        return SimpleNamespace(settings=lambda topics: dict.fromkeys(topics, keeps))


class Target(Source):
    """Its ledgers may not be looked at."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        raise NotAuthorized(f"west does not allow DESCRIBE of {', '.join(names)}")


def context_with(folder: Path, clusters: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Context:
    """Return a context of these clusters, in whose lake ten records of each topic are landed."""
    given = settings()
    given["flows"][0]["topics"] = list(TOPICS)
    context = context_of(folder, given=given, now=LANDED_AT)
    context.lake.create_all(["east"])
    Relay(context.lake.relay_location("east")).land(*(rows(topic, 0, *range(10)) for topic in TOPICS))
    known = [KnownTopic(name=name, generation=1, topic_id="1", partitions=1) for name in TOPICS]
    context.lake.append_rows(METADATA, [topic_row("east", "source", one, LANDED_AT) for one in known])
    for name in ("admin", "source"):
        monkeypatch.setattr(context, name, clusters.__getitem__)
    return context


@pytest.mark.law("E")
def test_what_left_the_source_before_it_was_landed_is_told_for_any_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    east = Source(orders=(12, 20), clicks=(0, 11), idle=(10, 10))

    def told(west: MemoryCluster) -> Findings:
        context = context_with(tmp_path, {"east": east, "west": west}, monkeypatch)
        return examine(context, only=["source.retention", "target.remote-topics"])

    gone = ("orders", "2 offsets of 1 partition left east before they were landed")
    assert [(one.subject, one.detail) for one in told(Source()).bad] == [gone], "law E: all else waits, or is landed"
    assert east.asked == 1, "one request for the ends of all topics"
    assert [(one.subject, one.detail) for one in told(Target()).bad] == [
        gone,
        ("east->west", "west does not allow DESCRIBE of mirrorlake.east.west.ledger"),
    ], "law E: a ledger that cannot be read hides no loss"
