"""Write tombstones for erased records to compacted remote topics, if a person chooses so.

The table `removed` has the erased records, the offset map their downstream offsets, and the target's log what became of them.
So there is no state in between: the same command finishes a killed run, and does nothing after a finished one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ERASED_KEY, ErasedOnTarget, TombstoneWriter
from mirrorlake.lake import write_tombstones
from mirrorlake.maintenance.erasure_results import OnTarget
from mirrorlake.model.flow import SourcePartition, TopicPartition, kafka_name
from mirrorlake.model.loops.hops import HOP_KEY, Hop
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.removed import Removed
from mirrorlake.offsets import load_offset_maps, to_mapped_range

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedSpans:
    """Erased upstream offsets as ascending `(first, end)` by source partition; `removal` and `reason` of the newest act."""

    spans: Mapping[SourcePartition, Ranges]
    removal: str
    reason: str

    @classmethod
    def of(
        cls, acts: Iterable[Removed], also: Mapping[SourcePartition, Collection[int]], *, reason: str
    ) -> ErasedSpans:
        """Merge the ranges that acts took out with offsets that are about to be."""
        acts = list(acts)
        spans: dict[SourcePartition, Ranges] = {}
        for one in acts:
            ranges = one.ranges or ((one.first_offset, one.last_offset - one.first_offset + 1),)
            spans.setdefault(one.source, []).extend((first, first + length) for first, length in ranges)
        for source, offsets in also.items():
            spans.setdefault(source, []).extend((offset, offset + 1) for offset in offsets)
        newest = max(acts, key=lambda one: one.removed_at, default=None)
        return cls(
            spans={source: _joined(several) for source, several in spans.items()},
            removal=newest.removal if newest is not None else "",
            reason=newest.reason if newest is not None else reason,
        )


def _joined(spans: Ranges) -> Ranges:
    found: Ranges = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((first, end))
    return found


def places_of(runs: Iterable[MappedRange], spans: Mapping[SourcePartition, Ranges]) -> dict[TopicPartition, Ranges]:
    """Return the downstream offsets of erased records as `(first, end)`, by target partition.

    Example:
        >>> source, target = SourcePartition("orders", 1, 0), TopicPartition("east.orders", 0)
        >>> run = MappedRange(source=source, target=target, first_upstream=0, last_upstream=4, first_downstream=10,
        ...           count=4, holes=((2, 1),))
        >>> places_of([run], {source: [(1, 4)]})
        {TopicPartition(topic='east.orders', partition=0): [(11, 13)]}
    """
    found: dict[TopicPartition, Ranges] = {}
    for run in runs:
        mine = spans.get(run.source, [])
        for first, last, downstream in run.dense_ranges():
            at = bisect_right(mine, first, key=lambda span: span[1])
            while at < len(mine) and mine[at][0] <= last:
                low, high = max(first, mine[at][0]), min(last + 1, mine[at][1])
                found.setdefault(run.target, []).append((downstream + low - first, downstream + high - first))
                at += 1
    return {target: _joined(several) for target, several in found.items()}


class ErasedTargets:
    """Find erased records of one topic on a flow's target, and write tombstones for them.

    Args:
        context: of the mirror.
        keys_held: returns those of some keys that remaining records of the topic in the relay have.
    """

    def __init__(self, context: Context, *, keys_held: Callable[[Collection[bytes]], Collection[bytes]]) -> None:
        self._context = context
        self._keys_held = keys_held

    def on(self, row: OnTarget, flow: FlowConfig, topic: str, erased: ErasedSpans, *, apply: bool) -> OnTarget:
        """Count the erased records on the flow's target and their tombstones; write these with `apply`."""
        try:
            return self._on(row, flow, topic, erased, apply=apply)
        except ClusterError as error:
            if apply:
                raise
            return replace(row, stays=error.cause)

    def _on(self, row: OnTarget, flow: FlowConfig, topic: str, erased: ErasedSpans, *, apply: bool) -> OnTarget:
        admin = self._context.admin(flow.target)
        places = self._places(flow, topic, erased)
        states = admin.describe({tp.topic for tp in places})
        writer = TombstoneWriter(
            flow.target,
            producer=self._context.producer_options(flow),
            reader=self._context.reader_options(flow.target),
            # The flow's lanes need a permission for this prefix anyway.
            transactional_id=f"mirrorlake.{kafka_name(flow.name)}.erase",
        )
        looks = writer.inspect({tp: ranges for tp, ranges in places.items() if tp.topic in states})
        standing = sum(one.records for one in looks.values())
        compacts = {name for name in states if "compact" in (admin.config_value(name, "cleanup.policy") or "")}
        may = {tp: places[tp] for tp in looks if tp.topic in compacts}
        due = {key for tp in may for key in looks[tp].due}
        held = set(self._keys_held(due)) if due else set()
        reasons = _reasons(looks, set(may), len(held), compacts)
        count = sum(len(looks[tp].due - held) for tp in may)
        if apply and count:
            count = writer.write(
                may,
                headers=_headers(flow, topic, erased),
                spared=self._keys_held,
                announce=lambda offsets: self._announce(
                    flow, offsets, erased, {n: s.topic_id for n, s in states.items()}
                ),
            )
        return replace(row, standing=standing, tombstones=count, stays="; ".join(reasons))

    def _places(self, flow: FlowConfig, topic: str, erased: ErasedSpans) -> dict[TopicPartition, Ranges]:
        again = flow.redrive()
        flows = [flow, *([again] if self._context.admin(flow.target).describe([again.ledger_topic]) else [])]
        edges = [edge for ranges in erased.spans.values() for span in ranges for edge in span]
        if not edges:
            return {}
        rows = load_offset_maps(self._context.lake, flows, self._context).ask(
            "SELECT * FROM {runs} WHERE source_topic = :topic AND last_upstream >= :first AND first_upstream < :end_at",
            topic=topic,
            first=min(edges),
            end_at=max(edges),
        )
        return places_of(map(to_mapped_range, rows), erased.spans)

    def _announce(
        self,
        flow: FlowConfig,
        offsets: Mapping[TopicPartition, Sequence[int]],
        erased: ErasedSpans,
        ids: Mapping[str, str],
    ) -> None:
        write_tombstones(
            self._context.lake,
            flow.target,
            offsets,
            removal=erased.removal,
            flow=flow.name,
            reason=erased.reason,
            ids=ids,
            at=self._context.now(),
        )


def _headers(flow: FlowConfig, topic: str, erased: ErasedSpans) -> list[tuple[str, bytes | None]]:
    """Return the headers of a tombstone: the erasure's id, and a hop from the source if clusters mirror each other."""
    found: list[tuple[str, bytes | None]] = [(ERASED_KEY, erased.removal.encode())]
    if flow.adds_hops:
        source = min(erased.spans)
        hop = Hop(flow.source, topic, source.partition, erased.spans[source][0][0])
        found.append((HOP_KEY, str(hop).encode()))
    return found


def _reasons(
    looks: Mapping[TopicPartition, ErasedOnTarget],
    may: Collection[TopicPartition],
    held: int,
    compacts: Collection[str],
) -> list[str]:
    """Return why erased records remain on the target despite tombstones; [] if none do."""
    reasons = []
    others = sorted({tp.topic for tp, one in looks.items() if tp.topic not in compacts and one.records})
    if others:
        reasons.append(f"{', '.join(others)} is not compacted: a tombstone removes nothing there")
    if keyless := sum(looks[tp].keyless for tp in may):
        reasons.append(f"{keyless} without a key")
    if held:
        reasons.append(f"{held} keys also have records that stay in the relay: erase them by --key")
    return reasons
