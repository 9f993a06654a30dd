"""The offset map as it is now: the tables `offset_map` and `withheld`, and what the ledgers know beyond them.

The ledger is the truth and the tables its copies (DESIGN 9): while a republisher runs, or after one was killed, the
newest runs stand in the ledger only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.ledger import LedgerReader
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import OFFSET_MAP, WITHHELD, Table
from mirrorlake.streams.copies import LedgerCopy, map_rows, withheld_rows
from mirrorlake.streams.ownership import merged_positions, read_lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMaps:
    """The runs, the withheld records and the positions of some flows.

    `runs` has the columns of `offset_map` and `source`, the alias of the flow's source cluster; `withheld` has those of the
    table. `positions` holds the next upstream offset to republish of each source partition, by flow.
    """

    runs: DataFrame
    withheld: DataFrame
    positions: Mapping[str, Mapping[SourcePartition, int]]


def known_maps(
    lake: Lake,
    flows: Iterable[FlowConfig],
    *,
    admins: Mapping[str, ClusterAdmin],
    ledger: Callable[[FlowConfig], LedgerReader],
) -> KnownMaps:
    """Read table and ledgers of the flows; the ledgers side by side.

    Raises:
        ClusterError: a target does not answer.
    """
    flows = list(flows)
    runs, withheld = lake.meta(OFFSET_MAP), lake.meta(WITHHELD)
    held: dict[tuple[str, str, int], int] = {}
    for row in _newest(runs, OFFSET_MAP).unionByName(_newest(withheld, WITHHELD)).collect():
        held[row.table, row.flow, row.lane] = int(row.seq)

    def read(flow: FlowConfig) -> tuple[dict[SourcePartition, int], dict[str, list[tuple[Any, ...]]]]:
        def lacks(table: Table, record: LedgerRecord) -> bool:
            return record.seq > held.get((table.name, flow.name, record.lane), -1)

        newer: list[LedgerRecord] = []
        with closing(ledger(flow)) as reader:
            last = read_lanes(reader, admins[flow.target], flow.ledger_topic)
            for lane, newest in last.items():
                # `withheld` is written after `offset_map`: what it holds, that one holds, too.
                if newest is not None and lacks(WITHHELD, newest) and (newest.withheld or lacks(OFFSET_MAP, newest)):
                    newer += [record for _, record in reader.since(lane, 0)]
        return merged_positions(last), {
            OFFSET_MAP.name: map_rows(flow.name, [record for record in newer if lacks(OFFSET_MAP, record)]),
            WITHHELD.name: withheld_rows(flow.name, [record for record in newer if lacks(WITHHELD, record)]),
        }

    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(read, flows))
    names = lake.spark.createDataFrame([(flow.name, flow.source) for flow in flows], "flow string, source string")

    def whole(frame: DataFrame, table: Table) -> DataFrame:
        rows = [row for _, newer in found for row in newer[table.name]]
        return frame.unionByName(lake.spark.createDataFrame(rows, table.ddl)) if rows else frame

    return KnownMaps(
        runs=whole(runs, OFFSET_MAP).join(F.broadcast(names), "flow"),
        withheld=whole(withheld, WITHHELD).join(F.broadcast(names.select("flow")), "flow"),
        positions={flow.name: positions for flow, (positions, _) in zip(flows, found, strict=True)},
    )


def recorded_maps(lake: Lake, flows: Iterable[FlowConfig]) -> KnownMaps:
    """Return what the tables alone know, where a target is lost and its ledgers with it."""
    flows = list(flows)
    names = lake.spark.createDataFrame([(flow.name, flow.source) for flow in flows], "flow string, source string")
    return KnownMaps(
        runs=lake.meta(OFFSET_MAP).join(F.broadcast(names), "flow"),
        withheld=lake.meta(WITHHELD).join(F.broadcast(names.select("flow")), "flow"),
        positions={flow.name: LedgerCopy(lake, flow.name, flow.source).positions() for flow in flows},
    )


def _newest(frame: DataFrame, table: Table) -> DataFrame:
    newest = frame.groupBy("flow", "lane").agg(F.max("ledger_seq").alias("seq"))
    return newest.withColumn("table", F.lit(table.name))
