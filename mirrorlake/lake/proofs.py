"""Write and read the table `proofs`: ranges of offsets that a verification proved equal at two ends.

A proof is valid for its topics only: it includes both ends' topic ids and the generation. A proven range stays proven when its
records leave an end. Only a full verification detects records that change afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake.incarnations import IncarnationFilter, load_incarnation_filter
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import PROOFS
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges

SOURCE_RELAY, RELAY_TARGET = "source-relay", "relay-target"
FULL, GONE, DIFFERENT = "full", "gone", "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProof:
    """A row of `proofs`, with the columns of that table; `last_upstream` is part of the range."""

    kind: str
    source: str
    partition: SourcePartition
    first_upstream: int
    last_upstream: int
    begins_at: int
    how: str
    records: int
    flow: str | None = None
    digest: str | None = None
    target_topic: str | None = None
    target_partition: int | None = None
    first_downstream: int | None = None
    last_downstream: int | None = None
    view: str | None = None
    relay_version: int | None = None
    source_topic_id: str | None = None
    target_topic_id: str | None = None
    upstream_end: int | None = None
    downstream_end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenRange:
    """Adjoining proofs of one source partition: upstream offsets `first..end - 1` between the two ends of `kind`.

    `is_gone` if an end no longer had these records, so that nothing was compared.
    """

    kind: str
    partition: SourcePartition
    first: int
    end: int
    begins_at: int
    is_gone: bool
    source_topic_id: str | None
    target_topic: str | None
    target_topic_id: str | None
    proven_at: datetime


def write_proofs(lake: Lake, proofs: Iterable[RangeProof], *, verification: str, at: datetime) -> None:
    rows = []
    for proof in proofs:
        row = asdict(proof)
        row |= {**row.pop("partition"), "verification": verification, "proven_at": at}
        rows.append(row)
    if rows:
        lake.create_side_table(PROOFS)
        lake.append(PROOFS, rows)


def read_proofs(lake: Lake, verification: str) -> tuple[datetime | None, list[RangeProof]]:
    """Return the time and the proofs of one verification, or (None, []) if it wrote nothing."""
    rows = lake.query("SELECT * FROM {proofs} WHERE verification = :id", missing_ok=True, id=verification)
    names = [name for name in RangeProof.__dataclass_fields__ if name != "partition"]
    return max((row.proven_at for row in rows), default=None), [
        RangeProof(
            partition=SourcePartition(row.topic, row.generation, row.partition),
            **{name: getattr(row, name) for name in names},
        )
        for row in rows
    ]


_KEYS = ("kind", "topic", "generation", "partition", "source_topic_id", "target_topic", "target_topic_id", "is_gone")
_KNOWN = """
    SELECT *, how = 'gone' AS is_gone FROM (SELECT *, proven_at AS committed_at FROM {proofs}) AS proofs
    WHERE (flow = :flow OR (flow IS NULL AND source = :source)) AND (flow IS NULL OR <standing>)
"""
# Proofs of one range from different times overlap: a range begins at an offset that no earlier proof reaches.
_RANGES = f"""
    WITH known AS ({_KNOWN}),
    reached AS (
        SELECT *, max(last_upstream) OVER (
            PARTITION BY {", ".join(_KEYS)}
            ORDER BY first_upstream, last_upstream ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
        FROM known WHERE how != 'different'
    ),
    numbered AS (
        SELECT *, sum(CASE WHEN before >= first_upstream - 1 THEN 0 ELSE 1 END) OVER (
            PARTITION BY {", ".join(_KEYS)}
            ORDER BY first_upstream, last_upstream ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS number
        FROM reached
    )
    SELECT {", ".join(_KEYS)}, min(first_upstream) AS first, max(last_upstream) + 1 AS end_at,
        max_by(begins_at, proven_at) AS begins_at, max(proven_at) AS proven_at
    FROM numbered GROUP BY {", ".join(_KEYS)}, number
"""  # noqa: S608
# Ranges that differed after they were proven, and were not proven again.
_DIFFERENT = f"""
    WITH known AS ({_KNOWN})
    SELECT d.kind, d.topic, d.generation, d.partition, d.first_upstream AS first, d.last_upstream + 1 AS end_at
    FROM known AS d LEFT ANTI JOIN known AS p
        ON p.how != 'different' AND p.proven_at > d.proven_at AND p.kind = d.kind AND p.topic = d.topic
        AND p.generation = d.generation AND p.partition = d.partition
        AND p.first_upstream <= d.first_upstream AND p.last_upstream >= d.last_upstream
    WHERE d.how = 'different'
"""  # noqa: S608


def proven_ranges(lake: Lake, flow: FlowConfig) -> list[ProvenRange]:
    """Return the proven ranges of a flow, also between its source and relay; omit deleted and renamed remote topics."""
    return _read_ranges(lake, flow, load_incarnation_filter(lake, [flow]))[0]


def _read_ranges(lake: Lake, flow: FlowConfig, lives: IncarnationFilter) -> tuple[list[ProvenRange], bool]:
    """Return the proven ranges of a flow, and whether any range differed after it was proven."""
    standing = lives.current_sql("")
    values: dict[str, Any] = {"flow": flow.name, "source": flow.source}
    rows = lake.query(_RANGES.replace("<standing>", standing), missing_ok=True, **values)
    differing: dict[tuple[str, SourcePartition], list[tuple[int, int]]] = {}
    for row in lake.query(_DIFFERENT.replace("<standing>", standing), **values) if rows else ():
        place = row.kind, SourcePartition(row.topic, row.generation, row.partition)
        differing.setdefault(place, []).append((int(row.first), int(row.end_at)))
    found = [
        ProvenRange(
            kind=row.kind,
            partition=source,
            first=first,
            end=end,
            begins_at=int(row.begins_at),
            is_gone=row.is_gone,
            source_topic_id=row.source_topic_id,
            target_topic=row.target_topic,
            target_topic_id=row.target_topic_id,
            proven_at=row.proven_at,
        )
        for row in rows
        for source in [SourcePartition(row.topic, row.generation, row.partition)]
        for first, end in Ranges([(row.first, row.end_at)]) - Ranges(differing.get((row.kind, source), ()))
    ]
    remotes = {topic: flow.remote_topic(topic) for topic in {one.partition.topic for one in found}}
    return [one for one in found if one.target_topic in (None, remotes[one.partition.topic])], bool(differing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedProofs:
    flow: FlowConfig
    version: int
    ranges: tuple[ProvenRange, ...]


class ProofCache:
    """A cache of proven ranges between verifications, which saves reading proofs that this process wrote.

    Reading `proofs` costs more with each verification, because each one adds a file. The cache is read again if another process
    wrote to `proofs` (by the table's version), and as long as a range differs or a remote topic had an earlier incarnation
    (law E).
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._kept: dict[str, _CachedProofs] = {}

    def read(self, flow: FlowConfig) -> list[ProvenRange]:
        lives, version = load_incarnation_filter(self._lake, [flow]), self._version()
        kept = self._kept.get(flow.name)
        if kept is not None and not lives and (kept.version, kept.flow) == (version, flow):
            return list(kept.ranges)
        self._kept.pop(flow.name, None)
        ranges, differs = _read_ranges(self._lake, flow, lives)
        if version is not None and not lives and not differs:
            self._kept[flow.name] = _CachedProofs(flow=flow, version=version, ranges=tuple(ranges))
        return ranges

    def write(self, proofs: Iterable[RangeProof], *, verification: str, at: datetime) -> None:
        """Append the proofs of one verification as `write_proofs` does, and cache them."""
        proofs, before = list(proofs), self._version()
        write_proofs(self._lake, proofs, verification=verification, at=at)
        after = self._version() if proofs else before
        for name, kept in list(self._kept.items()):
            flow = kept.flow
            mine = [one for one in proofs if one.flow == name or (one.flow is None and one.source == flow.source)]
            is_own = before == kept.version and after == kept.version + len(proofs[:1])
            if after is not None and is_own and all(one.how != DIFFERENT for one in mine):
                ranges = _joined([*kept.ranges, *(_to_range(one, at) for one in mine)])
                self._kept[name] = _CachedProofs(flow=flow, version=after, ranges=tuple(ranges))
            else:
                self._kept.pop(name, None)

    def _version(self) -> int | None:
        location = self._lake.meta_location(PROOFS)
        return self._lake.version(location) if not self._lake.is_spark_only and self._lake.exists(location) else None


def _to_range(proof: RangeProof, at: datetime) -> ProvenRange:
    return ProvenRange(
        kind=proof.kind,
        partition=proof.partition,
        first=proof.first_upstream,
        end=proof.last_upstream + 1,
        begins_at=proof.begins_at,
        is_gone=proof.how == GONE,
        source_topic_id=proof.source_topic_id,
        target_topic=proof.target_topic,
        target_topic_id=proof.target_topic_id,
        proven_at=at,
    )


def _joined(ranges: Iterable[ProvenRange]) -> list[ProvenRange]:
    """Join ranges that adjoin or overlap, as `_RANGES` does."""
    by_key: dict[tuple[Any, ...], list[ProvenRange]] = {}
    for one in ranges:
        key = one.kind, one.partition, one.source_topic_id, one.target_topic, one.target_topic_id, one.is_gone
        by_key.setdefault(key, []).append(one)
    found: list[ProvenRange] = []
    for several in by_key.values():
        held, *others = sorted(several, key=lambda one: (one.first, one.end))
        for one in others:
            if one.first > held.end:
                found.append(held)
                held = one
            else:
                newest = max(held, one, key=lambda each: each.proven_at)
                held = replace(newest, first=held.first, end=max(held.end, one.end))
        found.append(held)
    return found


def proven_until(lake: Lake, flow: FlowConfig) -> Mapping[SourcePartition, int]:
    """Return the upstream position up to which each landed record is proven to be on the target, by source partition.

    The proofs are without a break from the flow's first offset, on both hops: source against relay, relay against target. Records
    that had left an end before they were compared do not break it. A partition without a proof is omitted.
    """
    by_partition: dict[SourcePartition, list[ProvenRange]] = {}
    for one in proven_ranges(lake, flow):
        by_partition.setdefault(one.partition, []).append(one)
    found = {}
    for partition, ranges in by_partition.items():
        landing = [one for one in ranges if one.kind == SOURCE_RELAY]
        sending = [one for one in ranges if one.kind == RELAY_TARGET]
        if landing and sending:
            begin = max(_newest(landing), _newest(sending))
            until = min(_reached(landing, begin), _reached(sending, begin))
            if until > begin:
                found[partition] = until
    return found


def _newest(ranges: Sequence[ProvenRange]) -> int:
    return max(ranges, key=lambda one: one.proven_at).begins_at


def _reached(ranges: Iterable[ProvenRange], position: int) -> int:
    for one in sorted(ranges, key=lambda one: one.first):
        if one.first <= position < one.end:
            position = one.end
    return position
