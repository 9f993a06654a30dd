"""The offset map as it is now: the `offset_map` table, and what the ledgers know beyond it.

The ledger is the truth and the table its copy (DESIGN 9): while a republisher runs, or after one was killed, the newest
runs stand in the ledger only.
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
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import OFFSET_MAP
from mirrorlake.streams.ownership import map_rows, merged_positions, read_lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMaps:
    """The runs and positions of some flows.

    `runs` has the columns of `offset_map` and `source`, the alias of the flow's source cluster. `positions` holds the next
    upstream offset to republish of each source partition, by flow.
    """

    runs: DataFrame
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
    table = lake.meta(OFFSET_MAP)
    held: dict[str, dict[int, int]] = {}
    for row in table.groupBy("flow", "lane").agg(F.max("ledger_seq").alias("seq")).collect():
        held.setdefault(row.flow, {})[row.lane] = int(row.seq)

    def read(flow: FlowConfig) -> tuple[dict[SourcePartition, int], list[tuple[Any, ...]]]:
        with closing(ledger(flow)) as reader:
            last = read_lanes(reader, admins[flow.target], flow.ledger_topic)
            newer = [
                record
                for lane, newest in last.items()
                if newest is not None and newest.seq > held.get(flow.name, {}).get(lane, -1)
                for _, record in reader.since(lane, 0)
                if record.seq > held.get(flow.name, {}).get(lane, -1)
            ]
        return merged_positions(last), map_rows(flow.name, newer)

    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(read, flows))
    rows = [row for _, newer in found for row in newer]
    if rows:
        table = table.unionByName(lake.spark.createDataFrame(rows, OFFSET_MAP.ddl))
    names = lake.spark.createDataFrame([(flow.name, flow.source) for flow in flows], "flow string, source string")
    return KnownMaps(
        runs=table.join(F.broadcast(names), "flow"),
        positions={flow.name: positions for flow, (positions, _) in zip(flows, found, strict=True)},
    )
