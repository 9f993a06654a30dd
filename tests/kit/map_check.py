"""Check every offset of a map against the target, both ways, with the pure law as the specification."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import Exact, MappedRange, NoRecord, NotYetRepublished, OffsetMap
from tests.builders import run
from tests.kit.records import Record


def read_runs(lake: Path, flow: str, topic: str) -> dict[SourcePartition, OffsetMap]:
    """Read the `offset_map` table without Spark."""
    runs: dict[SourcePartition, list[MappedRange]] = {}
    for row in DeltaTable(lake / "meta" / "offset_map").to_pyarrow_table().to_pylist():
        if row["flow"] != flow or row["source_topic"] != topic:
            continue
        source = SourcePartition(topic, row["generation"], row["source_partition"])
        target = TopicPartition(row["target_topic"], row["target_partition"])
        holes = [(hole["first"], hole["length"]) for hole in row["holes"]]
        found = run(
            row["first_upstream"],
            row["last_upstream"],
            row["first_downstream"],
            holes,
            source=source,
            target=target,
        )
        assert found.count == row["record_count"]
        runs.setdefault(source, []).append(found)
    return {source: OffsetMap(found) for source, found in runs.items()}


def assert_map_is_exact(
    lake: Path, flow: str, topic: str, source: Mapping[int, list[Record]], target: Mapping[int, list[Record]]
) -> None:
    maps = read_runs(lake, flow, topic)
    for partition, records in source.items():
        if not records:
            continue
        offset_map = maps[SourcePartition(topic, 1, partition)]
        upstream = {record.offset: record for record in records}
        downstream = {record.offset: record for record in target[partition]}
        last = -1
        for offset in range(records[0].offset, records[-1].offset + 1):
            found = offset_map.translate(offset)
            if offset not in upstream:
                assert isinstance(found, NoRecord), (
                    f"law E: {partition}@{offset} holds no record but translates to {found}"
                )
                continue
            assert isinstance(found, Exact), f"law E: {partition}@{offset} was republished but {found}"
            assert found.offset > last, f"law B: {partition}@{offset} goes backwards"
            last = found.offset
            assert downstream[found.offset].content == upstream[offset].content, (
                f"law C: {partition}@{offset} -> {found}"
            )
            assert isinstance(found.partition, TopicPartition)
            back = offset_map.translate_back(found.offset, partition=found.partition)
            assert back == Exact(offset, SourcePartition(topic, 1, partition)), (
                f"{found} does not come back to {offset}"
            )
        assert isinstance(offset_map.translate(records[-1].offset + 1), NotYetRepublished)
