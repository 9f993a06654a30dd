"""The offset map as it is now: the tables `offset_map` and `withheld`, and what the ledgers know beyond them.

The ledger is the truth and the tables its copies (DESIGN 9): while a republisher runs, or after one was killed, the
newest runs stand in the ledger only. What is known is what was known at the call: no later append comes into it.
Runs into remote topics that were deleted since are left out (law A).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane.ledger_reader import LedgerReader
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.lives import lives_of
from mirrorlake.lake.metadata import carried_topics
from mirrorlake.lake.schema import OFFSET_MAP, WITHHELD, TableSchema
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.remotes import BEGUN_AGAIN, HeldTopic
from mirrorlake.republish.fencing import merged_positions, merged_remotes, read_lanes
from mirrorlake.republish.ledger_tables import LedgerCopy, map_rows, withheld_rows
from mirrorlake.republish.settling import look_at_remotes


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMaps:
    """The runs, the withheld records and the positions of some flows.

    `runs` has the columns of `offset_map` and `source`, the alias of the flow's source cluster; `withheld` has those of the
    table. `positions` holds the next upstream offset to republish of each source partition, by flow. `held` are remote topics
    that were lost and wait for a choice; `begins` says by flow from where on a remote topic that was lost holds records.
    """

    runs: DataFrame
    withheld: DataFrame
    positions: Mapping[str, Mapping[SourcePartition, int]]
    held: tuple[HeldTopic, ...] = ()
    begins: Mapping[str, Mapping[SourcePartition, int]] = field(default_factory=dict)

    def hindrance(self, flow: str, source: SourcePartition, offset: int, republished_from: int | None) -> str:
        """Return why a reader cannot go on in a remote topic that was lost; empty where none was lost (law A).

        Args:
            flow: the flow.
            source: what the reader reads.
            offset: the next offset it reads.
            republished_from: the first upstream offset that stands in the present topic, None where there is none yet.
        """
        for one in self.held:
            if one.flow == flow and source.topic in one.topics:
                return one.cause
        begins = self.begins.get(flow, {}).get(source, 0)
        if republished_from is not None or offset >= begins:
            return ""
        return f"records between {offset} and {begins} stood in an earlier life of the topic that was deleted"


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
    held = _held(lake)

    def read(
        flow: FlowConfig,
    ) -> tuple[dict[SourcePartition, int], list[HeldTopic], dict[str, list[dict[str, Any]]], bool]:
        def lacks(table: TableSchema, record: LedgerRecord) -> bool:
            return record.seq > held.get((table.name, flow.name, record.lane), -1)

        newer: list[LedgerRecord] = []
        trimmed = False
        with closing(ledger(flow)) as reader:
            last = read_lanes(reader, admins[flow.target], flow.ledger_topic)
            for lane, newest in last.items():
                # `withheld` is written after `offset_map`: what it holds, that one holds, too.
                if newest is not None and lacks(WITHHELD, newest) and (newest.withheld or lacks(OFFSET_MAP, newest)):
                    records = [record for _, record in reader.since(lane, 0)]
                    known = max(held.get((table.name, flow.name, lane), -1) for table in (OFFSET_MAP, WITHHELD))
                    trimmed |= bool(records) and records[0].seq > known + 1
                    newer += records
        rows = {
            OFFSET_MAP.name: map_rows(flow.name, [record for record in newer if lacks(OFFSET_MAP, record)]),
            WITHHELD.name: withheld_rows(flow.name, [record for record in newer if lacks(WITHHELD, record)]),
        }
        positions = merged_positions(last)
        lost, _ = look_at_remotes(flow, admins[flow.target], merged_remotes(last), positions)
        return positions, lost, rows, trimmed

    with ThreadPoolExecutor(max_workers=8) as pool:
        found = list(pool.map(read, flows))
        # A ledger is trimmed as soon as the tables hold its records: they may have moved there since the tables were read.
        if any(trimmed for *_, trimmed in found) and (now_held := _held(lake)) != held:
            held = now_held
            found = list(pool.map(read, flows))
    names = lake.spark.createDataFrame([(flow.name, flow.source) for flow in flows], "flow string, source string")

    def whole(frame: DataFrame, table: TableSchema) -> DataFrame:
        rows = [row for _, _, newer, _ in found for row in newer[table.name]]
        # A frame reads its table when it is asked, and a running flow has appended by then what stands in `rows` already.
        upto = [(flow, lane, seq) for (name, flow, lane), seq in held.items() if name == table.name]
        bounds = lake.spark.createDataFrame(upto, "flow string, lane int, known_seq bigint")
        frame = (
            frame.join(F.broadcast(bounds), ["flow", "lane"]).where("ledger_seq <= known_seq").select(*frame.columns)
        )
        return frame.unionByName(lake.spark.createDataFrame(rows, table.ddl)) if rows else frame

    lives = replace(lives_of(lake, flows), held=tuple(one for _, lost, *_ in found for one in lost))
    return KnownMaps(
        runs=lives.standing(whole(runs, OFFSET_MAP)).join(F.broadcast(names), "flow"),
        withheld=lives.in_force(whole(withheld, WITHHELD), partial(carried_topics, lake)).join(
            F.broadcast(names.select("flow")), "flow"
        ),
        positions={flow.name: positions for flow, (positions, *_) in zip(flows, found, strict=True)},
        held=lives.held,
        begins=beginnings(lake, flows) if lives else {},
    )


def with_recorded(
    known: Callable[[Iterable[FlowConfig]], KnownMaps], lake: Lake, flows: Iterable[FlowConfig], *, target: str
) -> KnownMaps:
    """Read the maps of the flows into a target, and of flows into other clusters what can be read of them.

    What a cluster that does not answer would know more counts as not read (law A), so the tables alone are safe there.

    Raises:
        ClusterError: the target itself does not answer.
    """
    flows = list(flows)
    into = [flow for flow in flows if flow.target == target]
    others = {
        flow.target: [each for each in flows if each.target == flow.target] for flow in flows if flow.target != target
    }
    found = known(into)
    for beside in others.values():
        try:
            more = known(beside)
        except ClusterError:
            more = recorded_maps(lake, beside)
        found = replace(
            found,
            runs=found.runs.unionByName(more.runs),
            withheld=found.withheld.unionByName(more.withheld),
            positions={**found.positions, **more.positions},
            held=found.held + more.held,
            begins={**found.begins, **more.begins},
        )
    return found


def beginnings(lake: Lake, flows: Iterable[FlowConfig]) -> dict[str, dict[SourcePartition, int]]:
    """Return from where on remote topics that were lost hold records, by flow, as it was chosen last."""
    rows = lake.ask(
        "SELECT flow, topic, generation, partition, max_by(position, observed_at) AS begins FROM {positions} "
        "WHERE kind = :kind AND array_contains(:flows, flow) GROUP BY flow, topic, generation, partition",
        kind=BEGUN_AGAIN,
        flows=[flow.name for flow in flows],
    )
    found: dict[str, dict[SourcePartition, int]] = {}
    for row in rows:
        found.setdefault(row.flow, {})[SourcePartition(row.topic, row.generation, row.partition)] = int(row.begins)
    return found


def recorded_maps(lake: Lake, flows: Iterable[FlowConfig]) -> KnownMaps:
    """Read the maps from the tables alone, for when a target is lost and its ledgers with it."""
    flows = list(flows)
    names = lake.spark.createDataFrame([(flow.name, flow.source) for flow in flows], "flow string, source string")
    lives = lives_of(lake, flows)
    return KnownMaps(
        runs=lives.standing(lake.meta(OFFSET_MAP)).join(F.broadcast(names), "flow"),
        withheld=lives.in_force(lake.meta(WITHHELD), partial(carried_topics, lake)).join(
            F.broadcast(names.select("flow")), "flow"
        ),
        positions={flow.name: LedgerCopy(lake, flow.name, flow.source).positions() for flow in flows},
        begins=beginnings(lake, flows) if lives else {},
    )


def _held(lake: Lake) -> dict[tuple[str, str, int], int]:
    rows = lake.ask(
        "SELECT 'offset_map' AS name, flow, lane, max(ledger_seq) AS seq FROM {offset_map} GROUP BY flow, lane "
        "UNION ALL SELECT 'withheld', flow, lane, max(ledger_seq) FROM {withheld} GROUP BY flow, lane"
    )
    return {(row.name, row.flow, row.lane): int(row.seq) for row in rows}
