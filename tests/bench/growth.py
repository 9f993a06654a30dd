"""What growth costs: starts, looks and commits by files, partitions and log, and look-ups by days of map; tables are generated.

python -m tests.bench.growth relay    # add actions without their files
python -m tests.bench.growth map      # a file a day, sorted, as upkeep leaves them
python -m tests.bench.growth status   # what a status reads of the lake, by partitions that all move
python -m tests.bench.growth upkeep   # small files that are rewritten
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from mirrorlake.config.schema import FlowConfig, LakeConfig
from mirrorlake.lag import Lag
from mirrorlake.lake import (
    METADATA,
    OFFSET_MAP,
    RELAY_ROWS,
    Lake,
    RelayLog,
    TableUpkeep,
    WrittenFile,
    landed_positions,
    proven_until,
    write_files,
)
from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.schema import RELAY, SIDE_TABLES
from mirrorlake.maintenance.compaction import compact_relay
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.offset_map import NotYetRepublished
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.offsets.translate import translate_back, translate_offset
from tests.bench.lag import EVERY_S, fill

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
# A lane that commits four times a second writes so many runs a day.
RUNS_A_DAY = 345_600
FLOW = FlowConfig(source="east", target="central", topics="orders").bound_to(TopicPattern(), adds_hops=False)


def main(part: str) -> None:
    """Print one line a measurement."""
    {"relay": _relay, "map": _map, "status": _status, "upkeep": _upkeep}[part]()


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _cost(do: Callable[[], object], times: int = 3) -> dict[str, float]:
    do()
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(times):
        do()
    return {
        "ms": round((time.monotonic() - began) / times * 1000, 1),
        "cpu_ms": round((time.process_time() - cpu) / times * 1000, 1),
    }


@contextmanager
def _new_relay() -> Iterator[tuple[str, FolderTables]]:
    with tempfile.TemporaryDirectory(prefix="mirrorlake-growth-") as folder:
        tables = FolderTables()
        tables.create(folder, RELAY)
        yield folder, tables


def _stats(partition: int, number: int) -> str:
    place = {"topic": f"t{partition // 10}", "generation": 1, "partition": partition % 10}
    at = f"{NOON + timedelta(seconds=number):%Y-%m-%dT%H:%M:%S}.000Z"
    ends = [{**place, "offset": first, "timestamp": at, "landed_at": at} for first in (number * 10, number * 10 + 9)]
    counts = dict.fromkeys(ends[0], 0)
    return json.dumps({"numRecords": 10, "minValues": ends[0], "maxValues": ends[1], "nullCount": counts})


def _relay() -> None:
    for partitions in (10, 100, 1_000):
        for files in (1_000, 100_000):
            with _new_relay() as (folder, tables):
                table = DeltaTable(folder)
                actions = [
                    AddAction(f"{n}.parquet", 3_000, {}, 0, True, _stats(n % partitions, n // partitions))
                    for n in range(files)
                ]
                table.create_write_transaction(actions, "append", table.schema())
                TableUpkeep(folder).checkpoint(after=1)
                ends = {SourcePartition(f"t{n // 10}", 1, n % 10): files // partitions * 10 for n in range(partitions)}
                version = iter(range(1, 1_000))
                small = WrittenFile("new.parquet", 3_000, 10, 300, _stats(0, files))

                def commit() -> None:
                    tables.commit(folder, [small], app_id="land", version=next(version), signature="{}")  # noqa: B023

                _say(
                    partitions=partitions,
                    files=files,
                    open=_cost(lambda: DeltaTable(folder)),
                    start_of_a_flow=_cost(lambda: RelayLog(FolderTables(), folder).files(ends)),  # noqa: B023
                    commit=_cost(commit, 20),
                )
    for commits in (300, 2_400, 20_000):
        with _new_relay() as (folder, tables):
            TableUpkeep(folder).checkpoint(after=0)
            log = Path(folder, "_delta_log")
            for number in range(1, commits):
                (log / f"{number:020}.json").write_text('{"commitInfo":{"timestamp":0,"operation":"WRITE"}}\n')
            TableUpkeep(folder).checkpoint(after=0)
            version = iter(range(1, 1_000))

            def commit() -> None:
                tables.commit(folder, [], app_id="land", version=next(version), signature="{}")  # noqa: B023

            _say(commits_in_the_log=commits, commit=_cost(commit, 10))


def _runs(first: int, count: int) -> pa.Table:
    numbers = pa.array(range(first, first + count), pa.int64())
    upstream = pc.multiply(numbers, 250)
    values: dict[str, Any] = {
        "flow": FLOW.name,
        "source_topic": "orders",
        "generation": 1,
        "source_partition": 0,
        "target_topic": "east.orders",
        "target_partition": 0,
        "record_count": 250,
        "holes": [],
        "lane": 0,
        "epoch": 1,
        "committed_at": NOON,
    }
    columns: dict[str, Any] = {
        "first_upstream": upstream,
        "last_upstream": pc.add(upstream, 249),
        "first_downstream": upstream,
        "ledger_seq": numbers,
    }
    types = arrow_types(OFFSET_MAP)
    arrays = [
        columns[name]
        if name in columns
        else pa.repeat(pa.scalar(values[name], kind), count)
        if name in values
        else pa.nulls(count, kind)
        for name, kind in types.items()
    ]
    return pa.table(arrays, schema=pa.schema(types))


def _map() -> None:
    for days in map(int, sys.argv[2:] or (1, 30)):
        with tempfile.TemporaryDirectory(prefix="mirrorlake-growth-") as root:
            lake, tables = Lake(_no_spark, LakeConfig(root=root)), FolderTables()
            tables.create(lake.relay_location("east"), RELAY)
            for table in SIDE_TABLES:
                tables.create(lake.meta_location(table), table)
            for day in range(days):
                tables.append(lake.meta_location(OFFSET_MAP), _runs(day * RUNS_A_DAY, RUNS_A_DAY))
            seen = {"cluster": "east", "role": "source", "kind": "topic", "topic": "orders", "generation": 1}
            seen |= {"topic_id": "id", "partitions": 1, "configs": {}, "present": True, "observed_at": NOON}
            lake.append_rows(METADATA, [seen])
            upkeep = TableUpkeep(lake.meta_location(OFFSET_MAP))
            end = RUNS_A_DAY * days * 250
            asked = end // 2

            def look_up() -> None:
                found = translate_offset(lake, FLOW, topic="orders", partition=0, offset=asked)  # noqa: B023
                assert getattr(found, "offset", None) == asked  # noqa: B023

            def look_back() -> None:
                found = translate_back(lake, FLOW, topic="east.orders", partition=0, offset=asked)  # noqa: B023
                assert getattr(found, "offset", None) == asked  # noqa: B023

            def look_past_the_end() -> None:
                found = translate_offset(lake, FLOW, topic="orders", partition=0, offset=end + 5)  # noqa: B023
                assert found == NotYetRepublished(end)  # noqa: B023

            size = sum(path.stat().st_size for path in Path(upkeep.path).glob("*.parquet"))
            _say(
                days=days,
                runs=RUNS_A_DAY * days,
                files=len(upkeep.live()),
                mb=size >> 20,
                look_up=_cost(look_up),
                look_back=_cost(look_back),
                look_where_there_is_no_record=_cost(look_past_the_end),
            )


def _status() -> None:
    looks, unused = 240, cast(Any, None)
    end = NOON + timedelta(seconds=looks * EVERY_S)
    flow = FlowConfig(source="east", target="central", topics="t").bound_to(TopicPattern(), adds_hops=False)
    for partitions in (10, 100, 1_000):
        with tempfile.TemporaryDirectory(prefix="mirrorlake-growth-") as root:
            lake, tables = Lake(_no_spark, LakeConfig(root=root)), FolderTables()
            tables.create(lake.relay_location("east"), RELAY)
            for table in SIDE_TABLES:
                tables.create(lake.meta_location(table), table)
            fill(lake, int(NOON.timestamp()), looks, partitions)
            lag = Lag(lake, [flow], look=unused, runs=unused, readers=unused, now=lambda: end)
            assert len(lag.windows()) == partitions
            _say(
                partitions=partitions,
                newest_samples=_cost(lag.windows),
                landed=_cost(lambda: landed_positions(lake, "east")),  # noqa: B023
                proven=_cost(lambda: proven_until(lake, flow)),  # noqa: B023
            )


def _upkeep() -> None:
    value = b"x" * 100
    for files, records in ((1_200, 25), (1_200, 250)):
        with _new_relay() as (folder, tables):
            for number in range(files):
                rows = [
                    dict.fromkeys(RELAY_ROWS.names)
                    | {"topic": "t", "generation": 1, "partition": 0, "offset": number * records + n}
                    | {"timestamp": NOON, "timestamp_type": 0, "value": value, "landed_at": NOON}
                    for n in range(records)
                ]
                written = list(write_files(folder, RELAY_ROWS, iter([pa.RecordBatch.from_pylist(rows, RELAY_ROWS)])))
                tables.commit(folder, written, app_id="land", version=number + 1, signature="{}")
            began, cpu = time.monotonic(), time.process_time()
            done = compact_relay(
                TableUpkeep(folder), "east", [], now=NOON + timedelta(days=1), patience=timedelta(days=1)
            )
            _say(
                files=done.files,
                into=done.into,
                records=files * records,
                s=round(time.monotonic() - began, 2),
                cpu_s=round(time.process_time() - cpu, 2),
            )


def _no_spark() -> Any:
    raise AssertionError("Spark was started")


if __name__ == "__main__":
    main(sys.argv[1])
