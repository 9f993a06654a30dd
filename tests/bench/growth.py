"""What growth costs: by partitions and files of the relay, by days of map, and by the backlog; tables are generated.

python -m tests.bench.growth relay    # batches, looks, look-ups and plans; files are named by the log only
python -m tests.bench.growth turn     # turns of landing, by partitions: written, committed, listed and read
python -m tests.bench.growth map      # look-ups, 1 and 30 days; a file a day, sorted, as upkeep leaves them
python -m tests.bench.growth status   # status, sampler, lag, metrics and accounts, by partitions that all move
python -m tests.bench.growth topics   # 1 000 topics of 10 partitions, by turns in which each has records
python -m tests.bench.growth upkeep   # small files that are rewritten
python -m tests.bench.growth drain    # the memory of a drain of 10 M records; starts brokers and Spark
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import (
    METADATA,
    OFFSET_MAP,
    RELAY_ROWS,
    TableUpkeep,
    write_files,
)
from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.maintenance.compaction import compact_relay
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.offset_map import NotYetRepublished
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.offsets.translate import translate_back, translate_offset
from tests.bench import growth_drain, growth_relay, growth_status, growth_topics, growth_turn
from tests.bench.growth_cost import cost, say
from tests.bench.growth_relay import NOON, known_topics, new_lake

# A lane that commits four times a second writes so many runs a day.
RUNS_A_DAY = 345_600
FLOW = FlowConfig(source="east", target="central", topics="orders").bound_to(TopicPattern(), adds_hops=False)


def main(part: str, *about: str) -> None:
    """Print one line a measurement."""
    {
        "relay": growth_relay.relay,
        "turn": growth_turn.turn,
        "map": _map,
        "status": growth_status.status,
        "topics": growth_topics.topics,
        "upkeep": _upkeep,
        "drain": growth_drain.drain,
    }[part](*about)


def _runs(day: int, partitions: int) -> pa.Table:
    """Make the runs of a day, 250 records each, in turn of all partitions; sorted by partition, as upkeep leaves them."""
    each = RUNS_A_DAY // partitions
    numbers = pa.array([n for _ in range(partitions) for n in range(day * each, (day + 1) * each)], pa.int64())
    partition = pa.array([p for p in range(partitions) for _ in range(each)], pa.int32())
    upstream = pc.multiply(numbers, 250)
    values: dict[str, Any] = {
        "flow": FLOW.name,
        "source_topic": "orders",
        "generation": 1,
        "target_topic": "east.orders",
        "record_count": 250,
        "holes": [],
        "lane": 0,
        "epoch": 1,
        "committed_at": NOON,
    }
    columns: dict[str, Any] = {
        "source_partition": partition,
        "target_partition": partition,
        "first_upstream": upstream,
        "last_upstream": pc.add(upstream, 249),
        "first_downstream": upstream,
        "ledger_seq": numbers,
    }
    types, count = arrow_types(OFFSET_MAP), len(numbers)
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
    for partitions in growth_relay.PARTITIONS:
        for days in (1, 30):
            with new_lake("orders") as (lake, registry):
                tables, place = FolderTables(), lake.meta_location(OFFSET_MAP)
                for day in range(days):
                    tables.append(place, _runs(day, partitions))
                lake.append_rows(METADATA, known_topics({"orders"}, partitions))
                end = RUNS_A_DAY // partitions * days * 250
                asked, last = end // 2, partitions - 1

                def look_up() -> None:
                    found = translate_offset(lake, FLOW, topic="orders", partition=last, offset=asked)  # noqa: B023
                    assert getattr(found, "offset", None) == asked  # noqa: B023

                def look_back() -> None:
                    found = translate_back(lake, FLOW, topic="east.orders", partition=last, offset=asked)  # noqa: B023
                    assert getattr(found, "offset", None) == asked  # noqa: B023

                def look_past_the_end() -> None:
                    found = translate_offset(lake, FLOW, topic="orders", partition=last, offset=end + 5)  # noqa: B023
                    assert found == NotYetRepublished(end)  # noqa: B023

                def passport() -> None:
                    found = registry.passport("central", TopicPartition("east.orders", last), asked)  # noqa: B023
                    assert found.offset == asked  # noqa: B023

                files = list(Path(place).glob("*.parquet"))
                say(
                    partitions=partitions,
                    days=days,
                    runs=RUNS_A_DAY // partitions * partitions * days,
                    files=len(files),
                    mb=sum(path.stat().st_size for path in files) >> 20,
                    look_up=cost(look_up),
                    look_back=cost(look_back),
                    look_where_there_is_no_record=cost(look_past_the_end),
                    passport=cost(passport),
                )


def _upkeep() -> None:
    value = b"x" * 100
    for files, records in ((1_200, 25), (1_200, 250)):
        with new_lake("t") as (lake, _):
            folder, tables = lake.relay_location("east"), FolderTables()
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
            say(
                files=done.files,
                into=done.into,
                records=files * records,
                s=round(time.monotonic() - began, 2),
                cpu_s=round(time.process_time() - cpu, 2),
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
