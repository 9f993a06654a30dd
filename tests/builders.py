"""Values of the model that many tests need, built from what a test is about; all else has a plain value."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import yaml

from mirrorlake.config import loads
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.kafka import FetchedRows
from mirrorlake.kafka.fetched_rows import _SCHEMA, Block
from mirrorlake.lake import LandedPositions, PositionKey, SubjectSample
from mirrorlake.model.acls import Acl
from mirrorlake.model.control import NOTHING_ASKED, ControlState
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import Claim, LedgerRecord, merged_positions
from mirrorlake.model.offset_map import MappedRange, holes_between
from mirrorlake.records import BrowsedRecord, Page, Passport
from mirrorlake.records.page import Stretch
from mirrorlake.records.record import LandedIn, Outcome
from mirrorlake.rules.murmur2 import murmur2
from mirrorlake.status.history import windows_of
from mirrorlake.status.hops import LagVerdict
from mirrorlake.status.judging import SnapshotJudge
from mirrorlake.status.snapshot import PositionSnapshot
from mirrorlake.status.verdict import HopKey, LagSample
from tests.kit.lake import NOON, map_row

ORDERS = SourcePartition("orders", 1, 0)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch_of(
    offsets: Sequence[int],
    *,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    stamps: Sequence[int] | None = None,
    headers: Sequence[Any] | None = None,
) -> pa.RecordBatch:
    """Return records as a lane and a rule get them; no key, no header, and noon where nothing else is given."""
    none, noon = [None] * len(offsets), [int(NOON.timestamp() * 1000)] * len(offsets)
    columns = {
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array(stamps or noon, pa.timestamp("ms", tz="UTC")),
        "key": pa.array(keys or none, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(headers or none, HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns)


def fetched_rows(tables: Mapping[TopicPartition, pa.Table]) -> FetchedRows:
    """Return records as a fetcher gives them."""
    of_schema = {tp: table.select(_SCHEMA.names).cast(_SCHEMA) for tp, table in tables.items()}
    return FetchedRows(
        [Block(rows, [tp], [0, len(rows)]) for tp, table in of_schema.items() for rows in table.to_batches()]
    )


def run(
    first: int,
    last: int,
    downstream: int = 0,
    holes: Sequence[tuple[int, int]] = (),
    *,
    source: SourcePartition = ORDERS,
    target: TopicPartition | None = None,
) -> MappedRange:
    """Return a run of the offset map: all offsets from the first to the last but those in holes."""
    return MappedRange(
        source=source,
        target=target or TopicPartition(f"east.{source.topic}", source.partition),
        first_upstream=first,
        last_upstream=last,
        first_downstream=downstream,
        count=last - first + 1 - sum(length for _, length in holes),
        holes=tuple(holes),
    )


def run_over(offsets: Sequence[int], downstream: int, **ends: Any) -> MappedRange:
    """Return the run of records that stand at these offsets."""
    return run(offsets[0], offsets[-1], downstream, holes_between(offsets), **ends)


def row_of(run: MappedRange, **columns: Any) -> dict[str, Any]:
    """Return a row of `offset_map`."""
    left_out = {first + n for first, length in run.holes for n in range(length)}
    offsets = [offset for offset in range(run.first_upstream, run.last_upstream + 1) if offset not in left_out]
    source = {"topic": run.source.topic, "partition": run.source.partition, "generation": run.source.generation}
    target = {"target_topic": run.target.topic, "target_partition": run.target.partition}
    return map_row(offsets, run.first_downstream, **{**source, **target, **columns})


@dataclass
class Placed:
    """What was sent: runs, and the downstream place of each (source partition, upstream offset)."""

    runs: list[MappedRange] = field(default_factory=list)
    truth: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    @property
    def back(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {place: upstream for upstream, place in self.truth.items()}

    def of(self, source: int) -> list[MappedRange]:
        return [run for run in self.runs if run.source.partition == source]


def placed_by_key(rng: random.Random, *, sources: int, targets: int, chunks: int = 8) -> Placed:
    """Send records by key: the runs of one source partition, to several target partitions, overlap and interleave."""
    upstream = [rng.randint(0, 9) for _ in range(sources)]
    ends = [rng.randint(0, 9) for _ in range(targets)]
    found = Placed()
    for _ in range(chunks):
        for source in rng.sample(range(sources), sources):
            chunk: dict[int, list[int]] = {}
            for _ in range(rng.randint(0, 60)):
                upstream[source] += rng.choice([0, 0, 0, 1, 4])
                # The last target partition gets nothing of the first source partition.
                chunk.setdefault(rng.randrange(targets - (source == 0)), []).append(upstream[source])
                upstream[source] += 1
            for target, offsets in chunk.items():
                ends_at = {"source": SourcePartition("orders", 1, source), "target": TopicPartition("a.orders", target)}
                found.runs.append(run_over(offsets, ends[target], **ends_at))
                found.truth |= {(source, o): (target, ends[target] + i) for i, o in enumerate(offsets)}
                ends[target] += len(offsets) + rng.choice([0, 1])
    return found


def ledger_record(**parts: Any) -> LedgerRecord:
    """Return a ledger record; what a claim says is given by the names of its fields, beside those of the record."""
    start = {"flow": "east->central", "lanes": 1, "epoch": 1, "owner": "o", "checkpoint_location": 1, "seq": 0}
    given, names = {**start, **parts}, {one.name for one in fields(Claim)}
    claim = Claim(**{name: value for name, value in given.items() if name in names})
    return LedgerRecord(claim=claim, **{name: value for name, value in given.items() if name not in names})


_RESOURCE = {"resource": "TOPIC", "name": "t", "pattern": "LITERAL"}
READ = Acl(**_RESOURCE, principal="User:a", host="*", operation="READ", permission="ALLOW")
"""Leave to read a topic."""


def hop_place(hop: str = "landed", group: str | None = None, **parts: Any) -> HopKey:
    cluster = "east" if hop == "landed" else "central"
    start = {"flow": "east->central", "source": "east", "topic": "orders", "generation": 1, "partition": 0}
    return HopKey(**{**start, "hop": hop, "group_id": group, "cluster": cluster, **parts})


def sample(
    at: datetime, position: int, end: int | None, *, waiting: datetime | None = None, lag_ms: int | None = None
) -> LagSample:
    """Return a look at a position; how long records wait is not known unless it is given."""
    lag = None if end is None else end - position
    return LagSample(
        observed_at=at, position=position, end_position=end, offset_lag=lag, waiting_since=waiting, time_lag_ms=lag_ms
    )


_KINDS = {"landed": "reached", "republished": "republished", "consumed": "consumed"}


def look_of(samples: Mapping[HopKey, LagSample]) -> PositionSnapshot:
    """Return the look that saw these samples, of one moment."""
    positions: dict[tuple[str, str], dict[PositionKey, int]] = {}
    waiting: dict[PositionKey, datetime | None] = {}
    for place, one in samples.items():
        kind = "group" if place.hop == "consumed" and place.cluster == place.source else _KINDS[place.hop]
        flow = place.flow if kind in ("republished", "consumed") else None
        key = PositionKey(place.source, flow, place.topic, place.generation, place.partition, kind, place.group_id)
        subject = ("flow", flow) if flow else ("relay" if kind == "reached" else "cluster", place.source)
        positions.setdefault(subject, {})[key] = one.position
        if one.time_lag_ms is not None:
            waiting[key] = one.waiting_since
        # Every partition of a flow has a position of it.
        of_flow = key._replace(flow=place.flow, kind="republished", group_id=None)
        positions.setdefault(("flow", place.flow), {}).setdefault(of_flow, one.position)
        if one.end_position is not None:
            end = key._replace(flow=None, kind="last_stable", group_id=None)
            positions.setdefault(("cluster", place.source), {})[end] = one.end_position
    looks = (SubjectSample(subject=kind, name=name, positions=several) for (kind, name), several in positions.items())
    at = max(one.observed_at for one in samples.values())
    return PositionSnapshot(observed_at=at, looks=tuple(looks), waiting=waiting)


def judging_context(retention_ms: int | None, state: ControlState, lake: Any) -> Any:
    """Return the context of a judge: clusters without transactions, on which topics keep records for so long, None for not known."""

    def settings(names: Iterable[str], **_: Any) -> dict[str, dict[str, str]]:
        return {} if retention_ms is None else {name: {"retention.ms": str(retention_ms)} for name in names}

    admin = SimpleNamespace(describe=lambda _: {}, high_watermarks=lambda _: {}, effective_configs_each=settings)
    return SimpleNamespace(
        lake=lake,
        admin=lambda _: admin,
        reader=nullcontext,
        config=SimpleNamespace(flows=(), lake_clusters=(), cluster=lambda _: SimpleNamespace(is_lake=False)),
        control=lambda: SimpleNamespace(state=lambda: state),
    )


def judged(
    windows: Mapping[HopKey, Sequence[LagSample]],
    *,
    now: datetime | None = None,
    retention_ms: int | None = None,
    state: ControlState = NOTHING_ASKED,
    **more: Any,
) -> LagVerdict:
    """Return the verdict by a look, which is the last of each window; what is sent is landed where nothing else is said."""
    flows: Any = [
        SimpleNamespace(
            name=name,
            source=source,
            target="central",
            objectives=SimpleNamespace(rpo=None, rto=None),
            carries=lambda _: True,
            remote_topic=lambda topic: f"remote.{topic}",
        )
        for name, source in {key.flow: key.source for key in windows}.items()
    ]
    landed = {
        key._replace(hop="landed", group_id=None, cluster=key.source): [
            one._replace(position=one.end_position or one.position, offset_lag=0, waiting_since=None, time_lag_ms=0)
            for one in window
        ]
        for key, window in windows.items()
    }
    every = {**landed, **windows}
    look = look_of({key: window[-1] for key, window in every.items()})
    earlier = (
        {key: window[number] for key, window in every.items() if number < len(window) - 1}
        for number in range(max(map(len, every.values())) - 1)
    )
    reached = {key.source_partition: window[-1].position for key, window in every.items()}
    sources = {flow.source: LandedPositions(reached, {}) for flow in flows}
    at = now or look.observed_at
    sent = {flow.name: merged_positions({}, str) for flow in flows}
    looked = replace(look, observed_at=at, landed=sources, sent=sent, errors=more.pop("errors", {}))
    recent = windows_of([*earlier])
    context = judging_context(retention_ms, state, SimpleNamespace(query=lambda *_, **__: []))
    read_windows = more.pop("read_windows", lambda _: recent)
    vars(context).update(more)
    found = SnapshotJudge(context, flows, looked, dict(looked.hops(flows)), read_windows).judge()
    # Of a window that says nothing of landing no verdict on it is shown.
    return replace(found, hops=tuple(hop for hop in found.hops if hop.key in windows))


def browsed(offset: int = 7, **parts: Any) -> BrowsedRecord:
    start = {"topic": "orders", "partition": 0, "timestamp_ms": 0, "key": b"k", "value": b"v"}
    return BrowsedRecord(**{**start, "offset": offset, **parts})


def page_of(records: Iterable[BrowsedRecord], *, start: int, end: int, **parts: Any) -> Page:
    stretch = {"partition": 0, "start": start, "next": end, "end": end}
    stretch |= {name: parts.pop(name) for name in _OF_A_STRETCH if name in parts}
    known = {"cluster": "east", "side": "cluster", "topic": "orders", "stretches": (Stretch(**stretch),)}
    return Page(**{**known, "records": tuple(records), **parts})


_OF_A_STRETCH = ("partition", "generation", "first", "next", "missing")


def passport_of(offset: int = 7, *outcomes: Outcome, **parts: Any) -> Passport:
    start = {"cluster": "east", "source": ORDERS, "words": "", "record": browsed(offset)}
    landed = LandedIn(file="file:/x", landed_at_ms=0)
    return Passport(**{**start, "offset": offset, "landed": landed, "outcomes": outcomes, **parts})


def mirror_config(*flows: Mapping[str, Any], east: Mapping[str, Any] | None = None, **top: Any) -> MirrorConfig:
    """Return settings of flows from east to west where they say nothing else; every cluster that is named is there."""
    entries = [{"source": "east", "target": "west", "topics": "orders", **flow} for flow in flows or ({},)]
    aliases = dict.fromkeys(["east", "west", *(str(entry[end]) for entry in entries for end in ("source", "target"))])
    clusters = {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in aliases}
    clusters["east"] |= east or {}
    return loads(json.dumps({"lake": {"root": "./lake"}, "clusters": clusters, "flows": entries, **top}))


def config_of(*flows: str) -> MirrorConfig:
    """Return settings of flows, each written as YAML without its braces."""
    return mirror_config(*(yaml.safe_load(f"{{{flow}}}") for flow in flows))


def partition_for(key: bytes, count: int) -> int:
    """Return the partition of a key among `count`, as Java's producers place it."""
    return (murmur2(key) & 0x7FFFFFFF) % count
