"""What growth costs: by partitions and files of the relay, by days of map, and by the backlog; tables are generated.

python -m tests.bench.growth relay    # batches, looks, look-ups and plans; files are named by the log only
python -m tests.bench.growth turn     # turns of landing, by partitions: written, committed, listed and read
python -m tests.bench.growth map      # look-ups, 1 and 30 days; a file a day, sorted, as upkeep leaves them
python -m tests.bench.growth busy     # an hour's map of 1 000 busy partitions: rows and bytes a record, look-ups
python -m tests.bench.growth status   # status, sampler, lag, metrics and accounts, by partitions that all move
python -m tests.bench.growth day      # turns of a trickle with upkeep between them: files, log, starts, memory
python -m tests.bench.growth removed  # log checkpoints, by files that were rewritten and not yet deleted
python -m tests.bench.growth drain    # the memory of a drain of 10 M records; starts brokers and Spark
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import METADATA, OFFSET_MAP, TableMaintenance
from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.maintenance.side_tables import compact_side_table
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.offset_map import MappedRange, NotYetRepublished
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.model.remotes import Remote
from mirrorlake.offsets.neighbours import find_neighbours
from mirrorlake.offsets.offset_maps import load_recorded_maps
from mirrorlake.offsets.translate import translate_back, translate_offset
from mirrorlake.republish.ledger_tables import LedgerCopy
from tests.bench import growth_day, growth_drain, growth_relay, growth_status, growth_turn
from tests.bench.generated import NOON, known_topics, new_lake
from tests.bench.growth_cost import cost, say

# A lane that commits four times a second writes so many runs a day.
RUNS_A_DAY = 345_600
# A record a second in each of so many partitions, and turns of a quarter of a second.
BUSY, TURNS_A_SECOND = 1_000, 4
FLOW = FlowConfig(source="east", target="central", topics="orders").bound_to(TopicPattern(), adds_hops=False)


def main(part: str, *about: str) -> None:
    """Print one line a measurement."""
    {
        "relay": growth_relay.relay,
        "turn": growth_turn.turn,
        "map": _map,
        "busy": _busy,
        "status": growth_status.status,
        "day": growth_day.day,
        "removed": growth_day.removed,
        "drain": growth_drain.drain,
    }[part](*about)


def _runs(period: int, partitions: int, *, runs: int = RUNS_A_DAY, records: int = 250, markers: int = 0) -> pa.Table:
    """Make the runs of a day, or period, in turn of all partitions; sorted by partition, as upkeep leaves them."""
    each = runs // partitions
    numbers = pa.array(np.tile(np.arange(period * each, (period + 1) * each), partitions), pa.int64())
    partition = pa.array(np.repeat(np.arange(partitions), each), pa.int32())
    upstream = pc.multiply(numbers, records)
    values: dict[str, Any] = {
        "flow": FLOW.name,
        "source_topic": "orders",
        "generation": 1,
        "target_topic": "east.orders",
        "record_count": records,
        "holes": [],
        "lane": 0,
        "epoch": 1,
        "committed_at": NOON,
    }
    columns: dict[str, Any] = {
        "source_partition": partition,
        "target_partition": partition,
        "first_upstream": upstream,
        "last_upstream": pc.add(upstream, records - 1),
        "first_downstream": pc.multiply(numbers, records + markers),
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
                lake.append_rows(METADATA, known_topics({"orders": "id"}, partitions))
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


def _transactions(number: int, *, markers: int) -> Iterator[LedgerRecord]:
    """Make the ledger records of 5 s in which each of the busy partitions gets a record a second, in turns of 0.25 s."""
    turn = BUSY // TURNS_A_SECOND
    for at in range(number * 5 * TURNS_A_SECOND, (number + 1) * 5 * TURNS_A_SECOND):
        offset, first = at // TURNS_A_SECOND, at % TURNS_A_SECOND * turn
        for lane in range(2):
            mine = [n for n in range(first, first + turn) if lane_of("orders", n, lanes=2) == lane]
            runs = [
                MappedRange(
                    source=SourcePartition("orders", 1, n),
                    target=TopicPartition("east.orders", n),
                    first_upstream=offset,
                    last_upstream=offset,
                    first_downstream=offset * (1 + markers),
                    count=1,
                )
                for n in mine
            ]
            yield LedgerRecord(
                claim=Claim(flow=FLOW.name, lane=lane, lanes=2, epoch=1),
                seq=at,
                runs=tuple(runs),
                remotes={"orders": Remote("east.orders", "id")},
                committed_at_ms=int(NOON.timestamp() * 1000) + at * 1000 // TURNS_A_SECOND,
            )


def _busy() -> None:
    for delivery, markers in (("exactly_once", 1), ("at_least_once", 0)):
        with new_lake("orders") as (lake, _):
            copy, cpu = LedgerCopy(lake, FLOW.name, FLOW.source).owned_by(1), 0.0
            for number in range(64):
                records = list(_transactions(number, markers=markers))
                began = time.process_time()
                copy.add(records)
                cpu += time.process_time() - began
            table, sent = TableMaintenance(lake.meta_location(OFFSET_MAP)), 64 * 5 * BUSY
            rows, fresh = table.live()["num_records"], table.live()["size_bytes"]
            say(
                delivery=delivery,
                records=sent,
                rows_a_record=pc.sum(rows).as_py() / sent,
                bytes_a_record=round(pc.sum(fresh).as_py() / sent, 1),
                copy_cpu_us_a_record=round(cpu / sent * 1e6, 1),
            )
            began = time.process_time()
            while compact_side_table(table, OFFSET_MAP).files:
                pass
            say(
                after_upkeep=len(table.live()),
                bytes_a_record=round(pc.sum(table.live()["size_bytes"]).as_py() / sent, 1),
                upkeep_cpu_us_a_record=round((time.process_time() - began) / sent * 1e6, 1),
            )
    with new_lake("orders") as (lake, _):
        tables, place = FolderTables(), lake.meta_location(OFFSET_MAP)
        tables.append(place, _runs(0, BUSY, runs=3600 * BUSY, records=1, markers=1))
        lake.append_rows(METADATA, known_topics({"orders": "id"}, BUSY))
        asked = 1800
        group = [(SourcePartition("orders", 1, n), asked) for n in range(BUSY)]

        def look_up() -> None:
            found = translate_offset(lake, FLOW, topic="orders", partition=BUSY - 1, offset=asked)
            assert getattr(found, "offset", None) == 2 * asked

        def translate_group() -> None:
            assert len(find_neighbours(load_recorded_maps(lake, [FLOW]), FLOW.name, group)) == BUSY

        size = sum(path.stat().st_size for path in Path(place).glob("*.parquet"))
        say(rows=3600 * BUSY, mb=size >> 20)
        say(look_up=cost(look_up))
        say(group_of_all_partitions=cost(translate_group, times=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
