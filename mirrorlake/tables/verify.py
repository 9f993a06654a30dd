"""Prove that a typed table has each relay record as a row, or tell why it has none (law E)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import BAD_RECORDS
from mirrorlake.render import JsonDisplayable, Sheet, badge, format_count, plural, table
from mirrorlake.tables.decode import FAULT, FILTERED, PLACE, TOMBSTONE
from mirrorlake.tables.definition import find_table
from mirrorlake.tables.relay import TableRelay, session_of
from mirrorlake.tables.rows import newest_of_keys
from mirrorlake.tables.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN = 20
_SAYS = {
    "missing": "is no row, and nothing explains it",
    "different": "is a row with other content",
    "doubled": "is several rows",
    "left over": "is a row, though a newer record or a rule takes it out",
    "not recorded": "is no row, and not in bad_records",
    "recorded": "is in bad_records, and nothing is wrong with it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFinding:
    """A record that the table does not hold as it should; `kind` is one of missing, different, doubled, left over, (not) recorded."""

    kind: str
    source: str
    topic: str
    generation: int
    partition: int
    offset: int

    @property
    def place(self) -> str:
        return f"{self.source} {self.topic}/{self.partition}@{self.offset}"

    def __str__(self) -> str:
        return f"{self.place} {_SAYS.get(self.kind, self.kind)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableProof(JsonDisplayable):
    """The comparison of a typed table with the relays, up to the table's positions.

    Attributes:
        records: records of its topics that the relays hold before the positions.
        rows: those that are rows, as they should be.
        superseded: those that a newer record of their key, or a tombstone, takes out, or that are past the table's retention.
        bad_records: those that are in `bad_records`.
        filtered: those that a rule withholds.
        not_compared: rows whose record the relays no longer hold.
        findings: the first records that are not as they should be.
        wrong: the number of all of these.
    """

    json_include: ClassVar[tuple[str, ...]] = ("equal",)

    table: str
    records: int
    rows: int
    superseded: int
    bad_records: int
    filtered: int
    not_compared: int
    findings: tuple[RowFinding, ...]
    wrong: int

    @property
    def equal(self) -> bool:
        """Whether each record is accounted for."""
        return not self.wrong

    def sheet(self) -> Sheet:
        """Show the counts, and the first findings."""
        counts = {
            "rows": self.rows,
            "superseded": self.superseded,
            "bad records": self.bad_records,
            "filtered": self.filtered,
            "rows without a record in the relay": self.not_compared,
        }
        said = ", ".join(f"{format_count(count)} {name}" for name, count in counts.items() if count or name == "rows")
        rows = [(one.kind, one.place, _SAYS.get(one.kind, one.kind)) for one in self.findings]
        parts = (table(f"{plural(self.wrong, 'record')} wrong", ("finding", "record", "it"), rows),) if rows else ()
        mark = badge("ok" if self.equal else "failed")
        return Sheet(title=f"table {self.table}", badge=mark, facts=(plural(self.records, "record"), said), parts=parts)


def verify_table(context: Context, name: str) -> TableProof:
    """Compare a typed table with a fresh fold of the relays' records (see `Mirror.verify_table`)."""
    from pyspark.sql import functions as F

    lake, chosen = context.lake, find_table(context, name)
    if not lake.exists(lake.typed_location(name)):
        raise UsageError(
            f"the table {name} was never written",
            consequence="nothing was compared",
            remedy=f"mirrorlake tables --run --once --table {name}",
            table=name,
        )
    relay = TableRelay(lake, chosen, session_of(lake.spark))
    relay.refresh()
    writer = TableWriter(context, chosen, relay, owner="verify")
    writer.open()
    judged = writer.judge(relay.before(writer.progress.positions)).persist()
    try:
        rows, quarantines = writer.rows(judged), chosen.config.bad_records != "null"
        wanted = newest_of_keys(rows).where(f"NOT {TOMBSTONE}") if chosen.config.mode == "upsert" else rows
        held = lake.load_typed(relay.session.read, name)
        if (keep := chosen.config.retention) is not None:
            # Older rows may have left, or leave at the next maintenance.
            young = F.col("_timestamp") >= F.lit(context.now() - keep)
            wanted, held = wanted.where(young), held.where(young)
        in_relay = held.join(judged.select(*PLACE), PLACE, "left_semi")
        bad = judged.where(f"{FAULT} IS NOT NULL AND NOT {FILTERED}") if quarantines else judged.limit(0)
        wanted_count, bad_count = wanted.count(), bad.count()
        parts = [_compared(wanted, in_relay)]
        if lake.exists(lake.meta_location(BAD_RECORDS)):
            recorded = lake.meta(BAD_RECORDS).where(F.col("table_name") == name)
            known = recorded.select(*(F.col(at[1:]).alias(at) for at in PLACE))
            parts.append(bad.join(known, PLACE, "left_anti").select(F.lit("not recorded").alias("kind"), *PLACE))
            fine = judged.where(f"{FAULT} IS NULL").join(known, PLACE, "left_semi")
            parts.append(fine.select(F.lit("recorded").alias("kind"), *PLACE))
        found = reduce(lambda one, other: one.unionByName(other), parts)
        kinds = Counter({row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()})
        shown = [one.asDict() for one in found.orderBy(*PLACE, "kind").limit(_SHOWN).collect()] if kinds else []
        return TableProof(
            table=name,
            records=judged.count(),
            rows=wanted_count - kinds["missing"] - kinds["different"] - kinds["doubled"],
            superseded=rows.count() - wanted_count,
            bad_records=bad_count,
            filtered=judged.where(FILTERED).count(),
            not_compared=held.count() - in_relay.count(),
            findings=tuple(RowFinding(**{key.removeprefix("_"): value for key, value in one.items()}) for one in shown),
            wrong=kinds.total(),
        )
    finally:
        judged.unpersist()


def _compared(wanted: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the records that differ, with `kind`: both sides as JSON text, which every type has."""
    from pyspark.sql import functions as F

    names = [name for name in rows.columns if name in wanted.columns and name not in PLACE]
    content = F.to_json(F.struct(*(f"`{name}`" for name in names)), {"ignoreNullFields": "false"})
    have = rows.select(*PLACE, content.alias("have")).groupBy(*PLACE)
    held = have.agg(F.first("have").alias("have"), F.count("*").alias("times"))
    want = wanted.select(*PLACE, content.alias("want"))
    kind = (
        F.when(F.col("times").isNull(), "missing")
        .when(F.col("want").isNull(), "left over")
        .when(F.col("times") > 1, "doubled")
        .when(F.col("have") != F.col("want"), "different")
    )
    both = want.join(held, PLACE, "full_outer").withColumn("kind", kind)
    return both.where("kind IS NOT NULL").select("kind", *PLACE)
