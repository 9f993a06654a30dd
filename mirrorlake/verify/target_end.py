"""A target at its cut, and what all flows into it wrote there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.verify.cut import FixedCut
from mirrorlake.verify.feeds import FeedKey


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSummary:
    """Mapped records of one flow between two partitions: count, and first upstream offset; `end` is downstream."""

    key: FeedKey
    target: TopicPartition
    records: int
    first_upstream: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEnd:
    """A target; `summaries` sum up the offset maps of all flows into some of its remote topics."""

    admin: ClusterAdmin
    options: Mapping[str, Any]
    cut: FixedCut
    summaries: Sequence[FeedSummary] = ()

    @classmethod
    def at(cls, cut: FixedCut, alias: str, context: Context) -> TargetEnd:
        return cls(admin=context.admin(alias), options=context.reader_options(alias), cut=cut)

    @property
    def last_ends(self) -> dict[TopicPartition, int]:
        """The end of the last mapped record of any flow, by target partition."""
        found: dict[TopicPartition, int] = {}
        for piece in self.summaries:
            found[piece.target] = max(found.get(piece.target, 0), piece.end)
        return found

    def sources_of_shared(self) -> dict[str, frozenset[str]]:
        """Return the remote topics that applications of the target may write to, with the sources of their flows.

        Each record of such a flow names its source in its last hop (`model/loops/hops.py`).
        """
        writers: dict[str, set[str]] = {}
        for piece in self.summaries:
            writers.setdefault(piece.target.topic, set()).add(str(piece.key.flow))
        flows = self.cut.flows
        return {
            topic: frozenset(flows[name].source for name in names)
            for topic, names in writers.items()
            if all(flows[name].adds_hops for name in names)
        }


def summarize_feeds(cut: FixedCut, remotes: Iterable[str]) -> list[FeedSummary]:
    rows = cut.maps.ask(
        "SELECT flow, source_topic, generation, source_partition, target_topic, target_partition, "
        "sum(record_count) AS records, min(first_upstream) AS first_upstream, "
        "max(first_downstream + record_count) AS end_at FROM {runs} WHERE array_contains(:remotes, target_topic) "
        "GROUP BY flow, source_topic, generation, source_partition, target_topic, target_partition",
        remotes=sorted(remotes),
    )
    return [
        FeedSummary(
            key=FeedKey(row.flow, SourcePartition(row.source_topic, row.generation, row.source_partition)),
            target=TopicPartition(row.target_topic, row.target_partition),
            records=int(row.records),
            first_upstream=int(row.first_upstream),
            end=int(row.end_at),
        )
        for row in rows
    ]


def compacting_topics(admin: ClusterAdmin, topics: Iterable[str]) -> frozenset[str]:
    """Return the compacted remote topics, or none if their settings may not be read."""
    with suppress(ClusterError):
        policies = {name: settings.get("cleanup.policy") for name, settings in admin.configs(topics).items()}
        if bare := [name for name, policy in policies.items() if policy is None]:
            # A topic without a policy uses the brokers'.
            default = admin.default_cleanup(bare)
            policies = {name: policy or default for name, policy in policies.items()}
        return frozenset(name for name, policy in policies.items() if "compact" in (policy or ""))
    return frozenset()
