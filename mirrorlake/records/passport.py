"""The passport of one record: source coordinates, its file in the relay, and what became of it in every flow.

Law E (accounted for): every upstream offset is landed or explained, every landed record is republished or explained; the
passport says so in words, and says plainly where it does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.lake import GAPS, OFFSET_MAP, POSITIONS, WITHHELD, Lake, landed_positions, lives_of
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.removed import LEFT
from mirrorlake.model.withheld import QUARANTINED
from mirrorlake.offsets import Clusters, KnownMaps, known_maps, to_run
from mirrorlake.records.landed_log import explain, landed_record
from mirrorlake.records.record import LandedIn, Missing, Origin, Outcome, Passport, in_words


class Registry:
    """Where passports are looked up: the lake, the ledgers of all flows, and what the settings say of them."""

    def __init__(self, lake: Lake, clusters: Clusters) -> None:
        self.lake = lake
        self.flows = clusters.config.flows
        self._clusters = clusters

    def passport(self, cluster: str, where: TopicPartition, offset: int, *, generation: int | None = None) -> Passport:
        """Look up the record at an offset of a cluster, a source's or a remote topic's.

        `generation` is the life of a source topic; None for the newest that holds the offset.
        """
        if self._is_source(cluster, where.topic):
            return self._of_source(cluster, where, offset, generation)
        for first in self._origins(cluster, where, offset):
            upstream = TopicPartition(first.source.topic, first.source.partition)
            return self._of_source(first.cluster, upstream, first.offset, first.source.generation)
        into = [flow.name for flow in self.flows if flow.target == cluster]
        why = (
            f"none of {', '.join(into)} wrote it: another writer's record, a transaction's marker, or not known yet"
            if into
            else "no flow leads here"
        )
        return Passport(
            cluster=cluster,
            source=None,
            offset=offset,
            words=f"{cluster} {where}@{offset} is not a mirrored record: {why}",
        )

    def _is_source(self, cluster: str, topic: str) -> bool:
        flows = [flow for flow in self.flows if flow.source == cluster]
        if any(flow.carries(topic) for flow in flows):
            return True
        # What an earlier selection took stays in the relay, and its passport with it.
        location = self.lake.relay_location(cluster)
        if not flows or not self.lake.exists(location):
            return False
        return bool(self.lake.relay(cluster).where(F.col("topic") == topic).limit(1).count())

    def _origins(self, cluster: str, where: TopicPartition, offset: int) -> tuple[Origin, ...]:
        flows = [flow for flow in self.flows if flow.target == cluster]
        if not flows:
            return ()
        runs = lives_of(self.lake, flows).standing(self.lake.meta(OFFSET_MAP))
        found = tuple(_standing(flows, runs, where, offset))
        # The newest runs may stand in the ledgers only (DESIGN 9).
        if not found and (known := self._known(flows)) is not None:
            found = tuple(_standing(flows, known.runs_frame(), where, offset))
        return found

    def _known(self, flows: Sequence[FlowConfig]) -> KnownMaps | None:
        try:
            return known_maps(self.lake, flows, self._clusters)
        except ClusterError:
            # A target does not answer: what the tables hold is still true, only perhaps not the newest.
            return None

    def _of_source(self, alias: str, where: TopicPartition, offset: int, generation: int | None) -> Passport:
        row, source = self._landed(alias, where, offset, generation)
        missing = None if row is not None else self._why_missing(alias, source, offset)
        flows = [flow for flow in self.flows if flow.source == alias]
        outcomes = tuple(self._outcomes(flows, source, offset, row, missing))
        return Passport(
            cluster=alias,
            source=source,
            offset=offset,
            words=in_words(alias, source, offset, missing, outcomes),
            record=None if row is None else landed_record(row),
            landed=None if row is None else LandedIn(file=row.file, landed_at_ms=row.landed_at_ms),
            missing=missing,
            outcomes=outcomes,
            came_from=self._origins(alias, where, offset),
        )

    def _landed(
        self, alias: str, where: TopicPartition, offset: int, generation: int | None
    ) -> tuple[Any, SourcePartition]:
        lives = [generation or 1]
        if self.lake.exists(self.lake.relay_location(alias)):
            relay = self.lake.relay(alias).select("*", F.col("_metadata.file_path").alias("file"))
            mine = relay.where(
                (F.col("topic") == where.topic) & (F.col("partition") == where.partition) & (F.col("offset") == offset)
            )
            if generation is not None:
                mine = mine.where(F.col("generation") == generation)
            for row in with_times(mine).orderBy(F.desc("generation")).limit(1).collect():
                return row, SourcePartition(where.topic, row.generation, where.partition)
            if generation is None:
                reached = landed_positions(self.lake, alias).reached
                lives += [s.generation for s in reached if (s.topic, s.partition) == (where.topic, where.partition)]
        return None, SourcePartition(where.topic, max(lives), where.partition)

    def _why_missing(self, alias: str, source: SourcePartition, offset: int) -> Missing:
        if not self.lake.exists(self.lake.meta_location(GAPS)):
            return Missing(first=offset, last=offset, kind="not_landed")
        [found] = explain(self.lake, alias, source, [(offset, offset)])
        if found.kind == "unexplained" and self.lake.exists(self.lake.relay_location(alias)):
            landed = landed_positions(self.lake, alias)
            if offset >= landed.reached.get(source, 0):
                return Missing(first=offset, last=offset, kind="not_landed")
        return found

    def _outcomes(
        self, flows: Sequence[FlowConfig], source: SourcePartition, offset: int, row: Any, missing: Missing | None
    ) -> Iterable[Outcome]:
        has_left = missing is not None and missing.kind in LEFT.values()
        if row is None and not has_left:
            for flow in flows:
                if flow.carries(source.topic):
                    words = (
                        "there was nothing to send" if missing and missing.kind != "not_landed" else "not landed yet"
                    )
                    yield Outcome(flow=flow.name, target=flow.target, status="not_landed", words=words)
            return
        known: KnownMaps | None = None
        lives, runs, withheld = lives_of(self.lake, flows), self.lake.meta(OFFSET_MAP), self.lake.meta(WITHHELD)
        found = _recorded_outcomes(flows, lives.standing(runs), withheld, source, offset)
        missing_in = [flow for flow in flows if flow.name not in found and flow.carries(source.topic)]
        if missing_in and (known := self._known(missing_in)) is not None:
            found |= _recorded_outcomes(missing_in, known.runs_frame(), known.withheld_frame(), source, offset)
        if (fallen := lives.fallen(runs)) is not None:
            for name, one in _recorded_outcomes(flows, fallen, withheld.limit(0), source, offset).items():
                words = f"{one.words}, in an earlier life of the topic that was deleted"
                found.setdefault(name, replace(one, status="in_a_deleted_topic", words=words))
        for each in flows:
            yield found.get(each.name) or self._not_recorded(each, source, offset, row, known)

    def _not_recorded(
        self, flow: FlowConfig, source: SourcePartition, offset: int, row: Any, known: KnownMaps | None
    ) -> Outcome:
        def outcome(status: Any, words: str) -> Outcome:
            return Outcome(flow=flow.name, target=flow.target, status=status, words=words)

        if flow.denies(source.topic):
            return outcome("not_carried", f"not carried: {source.topic} never leaves {flow.source}")
        if not flow.carries(source.topic):
            return outcome("not_carried", f"not carried: the flow does not take {source.topic}")
        if row is None:
            return outcome("left_the_relay", "not sent: it left the relay before the flow came to it")
        if flow.start.timestamp_ms is not None and row.timestamp_ms < flow.start.timestamp_ms:
            return outcome("not_carried", "not carried: it is older than the flow's start")
        taken = self.lake.meta(POSITIONS).where((F.col("flow") == flow.name) & (F.col("kind") == "taken_over"))
        if at_source(taken, source).where(F.col("position") > offset).limit(1).count():
            return outcome("not_carried", "not carried: it lies before the place where the flow took over")
        if known is None:
            return outcome("not_yet", f"not yet republished, as far as the lake knows: {flow.target} does not answer")
        position = known.positions.get(flow.name, {}).get(source, 0)
        if offset >= position:
            return outcome("not_yet", f"not yet republished: the flow goes on at offset {position}")
        return outcome(
            "unexplained",
            f"NOT accounted for: the flow is at offset {position} and never recorded it; mirrorlake verify",
        )


def _standing(flows: Sequence[FlowConfig], runs: DataFrame, where: TopicPartition, offset: int) -> Iterator[Origin]:
    """Find the origin of the record at a downstream offset in the runs of the flows that lead there and of their re-drives."""
    names = {name: flow for flow in flows for name in (flow.name, flow.redrive_name)}
    rows = runs.where(
        F.col("flow").isin([*names])
        & (F.col("target_topic") == where.topic)
        & (F.col("target_partition") == where.partition)
        & (F.col("first_downstream") <= offset)
        & (F.col("first_downstream") + F.col("record_count") > offset)
    )
    for row in rows.limit(1).collect():
        flow, run = names[row.flow], to_run(row)
        yield Origin(flow=flow.name, cluster=flow.source, source=run.source, offset=run.upstream_of(offset))


def _recorded_outcomes(
    flows: Sequence[FlowConfig], runs: DataFrame, withheld: DataFrame, source: SourcePartition, offset: int
) -> dict[str, Outcome]:
    """Collect the newest outcome of a record from each flow and its re-drive; flows that recorded none are left out."""
    names = {name: flow for flow in flows for name in (flow.name, flow.redrive_name)}
    mine = runs.where(
        F.col("flow").isin([*names])
        & (F.col("source_topic") == source.topic)
        & (F.col("generation") == source.generation)
        & (F.col("source_partition") == source.partition)
        & (F.col("first_upstream") <= offset)
        & (F.col("last_upstream") >= offset)
    )
    kept = at_source(withheld, source).where(
        F.col("flow").isin([*names])
        & (F.col("first_offset") <= offset)
        & (F.col("last_offset") >= offset)
        & F.exists("ranges", lambda part: (part.first <= offset) & (part.first + part.length > offset))
    )
    # What was sent has the last word, then a re-drive that filtered the record, then what was recorded last.
    found = {}
    for row in sorted(_timed(kept, "withheld_at"), key=lambda row: (row.kind != QUARANTINED, row.at_ms)):
        is_quarantined = row.kind == QUARANTINED
        why = f", because {row.reason}" if row.reason else ""
        found[names[row.flow].name] = replace(
            _recorded(names[row.flow], row),
            status="quarantined" if is_quarantined else "filtered",
            words=f"{'quarantined' if is_quarantined else 'filtered'} by the rule {row.rule}{why}",
            rule=row.rule,
            rule_version=row.rule_version,
            reason=row.reason or None,
        )
    for row in _timed(mine, "committed_at"):
        if (downstream := to_run(row).downstream_of(offset)) is not None:
            flow, place = names[row.flow], TopicPartition(row.target_topic, row.target_partition)
            again = ", sent again from the quarantine" if row.flow == flow.redrive_name else ""
            found[flow.name] = replace(
                _recorded(flow, row),
                words=f"{flow.target} {place}@{downstream}{again}",
                place=place,
                offset=downstream,
            )
    return found


def at_source(table: DataFrame, source: SourcePartition) -> DataFrame:
    """Return the rows of one source partition; file statistics skip the other files."""
    return table.where(
        (F.col("topic") == source.topic)
        & (F.col("generation") == source.generation)
        & (F.col("partition") == source.partition)
    )


def with_times(relay: DataFrame) -> DataFrame:
    """Add the times of relay rows in milliseconds since 1970 UTC, whatever the session's zone."""
    return relay.withColumns({"timestamp_ms": F.unix_millis("timestamp"), "landed_at_ms": F.unix_millis("landed_at")})


def _timed(rows: DataFrame, column: str) -> list[Any]:
    return list(rows.withColumn("at_ms", F.unix_millis(column)).collect())


def _recorded(flow: FlowConfig, row: Any) -> Outcome:
    return Outcome(
        flow=flow.name,
        target=flow.target,
        status="republished",
        words="",
        lane=row.lane,
        ledger_seq=row.ledger_seq,
        committed_at_ms=row.at_ms,
        redriven=row.flow == flow.redrive_name,
    )
