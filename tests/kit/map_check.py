"""Check a flow's offset map against source and target, both ways, from the documented rows of `offset_map` and by asking."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable

from mirrorlake import Exact, FlowHandle, NoRecord, NotYetRepublished
from tests.kit.records import Record

# Of each partition, how many offsets the product is asked for, beside the first and the last.
_ASKED = 3
Place = tuple[str, int, int]


def read_map(lake: Path, flow: str, topic: str, *, generation: int = 1) -> dict[tuple[int, int], Place]:
    """Return topic, partition and offset of the copy by upstream partition and offset, as docs/tables.md says it."""
    filters = [
        ("flow", "=", flow),
        ("source_topic", "=", topic),
        ("generation", "=", generation),
        ("kind", "=", "sent"),
    ]
    found: dict[tuple[int, int], Place] = {}
    for row in DeltaTable(lake / "meta" / "offset_map").to_pyarrow_table(filters=filters).to_pylist():
        holes = {hole["first"] + n for hole in row["holes"] for n in range(hole["length"])}
        upstream = [one for one in range(row["first_upstream"], row["last_upstream"] + 1) if one not in holes]
        assert len(upstream) == row["record_count"], f"law E: {row}"
        for number, offset in enumerate(upstream):
            place = row["target_topic"], row["target_partition"], row["first_downstream"] + number
            known = found.setdefault((row["source_partition"], offset), place)
            assert known == place, f"{row['source_partition']}@{offset} stands twice on the target"
    assert len({*found.values()}) == len(found), "two records stand at one downstream offset"
    return found


def assert_map_is_exact(
    lake: Path,
    flow: str,
    topic: str,
    source: Mapping[int, list[Record]],
    target: Mapping[int, list[Record]],
    *,
    asked: FlowHandle | None = None,
) -> None:
    """Laws B, C and E of every offset; the target may hold records of others, and in other partitions."""
    places = read_map(lake, flow, topic)
    downstream = {(partition, record.offset): record for partition, records in target.items() for record in records}
    for partition, records in source.items():
        if not records:
            continue
        upstream = {record.offset: record for record in records}
        mapped = {at: place for (of, at), place in places.items() if of == partition and at >= records[0].offset}
        assert mapped.keys() == upstream.keys(), f"law E: {sorted(mapped.keys() ^ upstream.keys())[:9]} of {partition}"
        last: dict[int, int] = {}
        for offset, (_, to, at) in sorted(mapped.items()):
            assert at > last.get(to, -1), f"law B: {partition}@{offset} goes backwards"
            assert downstream[to, at].content == upstream[offset].content, f"law C: {partition}@{offset} -> {to}@{at}"
            last[to] = at
        if asked is not None:
            _ask(asked, topic, partition, mapped)


def _ask(flow: FlowHandle, topic: str, partition: int, mapped: Mapping[int, Place]) -> None:
    offsets = sorted(mapped)
    for offset in {*offsets[:: max(1, len(offsets) // _ASKED)], offsets[-1]}:
        name, to, at = mapped[offset]
        there = flow.offsets.translate(topic, partition, offset)
        assert isinstance(there, Exact), f"law E: {partition}@{offset} was republished, but {there}"
        assert (there.partition.topic, there.partition.partition, there.offset) == (name, to, at)
        back = flow.offsets.translate_back(name, to, at)
        assert isinstance(back, Exact), f"{name}-{to}@{at} has no way back: {back}"
        assert (back.partition.topic, back.partition.partition, back.offset) == (topic, partition, offset)
    # A marker of a transaction may be there.
    assert isinstance(flow.offsets.translate(topic, partition, offsets[-1] + 1), (NotYetRepublished, NoRecord))
