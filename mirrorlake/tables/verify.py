"""Prove that a typed table has each relay record as a row, or tell why it has none (law E)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import BAD_RECORDS
from mirrorlake.render import JsonDisplayable, Sheet, badge, format_count, plural, table
from mirrorlake.tables.decoding import COORDINATES, FAULT, FILTERED, TOMBSTONE
from mirrorlake.tables.definition import find_table
from mirrorlake.tables.make import make_writer
from mirrorlake.tables.merge import newest_of_keys
from mirrorlake.tables.relay_records import before, records_of_table, session_of, with_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = list(COORDINATES)[:5]
_SHOWN = 20
_SAYS = {
    "missing": "is no row, and nothing explains it",
    "different": "is a row with other content",
    "doubled": "is several rows",
    "left over": "is a row, though a newer record or a rule takes it out",
    "not recorded": "is no row, and not in bad_records",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFinding:
    """A record that the table does not hold as it should; `kind` is missing, different, doubled, left over or not recorded."""

    kind: str
    source: str
    topic: str
    generation: int
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.source} {self.topic}/{self.partition}@{self.offset} {_SAYS.get(self.kind, self.kind)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableProof(JsonDisplayable):
    """The comparison of a typed table with the relays, up to the table's positions.

    Attributes:
        records: records of its topics that the relays hold before the positions.
        rows: those that are rows, as they should be.
        superseded: those that a newer record of their key, or a tombstone, takes out.
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
        rows = [
            (one.kind, f"{one.source} {one.topic}/{one.partition}@{one.offset}", _SAYS.get(one.kind, one.kind))
            for one in self.findings
        ]
        parts = (table(f"{plural(self.wrong, 'record')} wrong", ("finding", "record", "it"), rows),) if rows else ()
        mark = badge("ok" if self.equal else "failed")
        return Sheet(title=f"table {self.table}", badge=mark, facts=(plural(self.records, "record"), said), parts=parts)


def verify_table(context: Context, name: str) -> TableProof:
    """Compare a typed table with the records of the relays (see `Mirror.verify_table`)."""
    from pyspark.sql import functions as F

    lake, chosen = context.lake, find_table(context, name)
    if not lake.exists(lake.typed_location(chosen.name)):
        raise UsageError(
            f"the table {chosen.name} was never written",
            consequence="nothing was compared",
            remedy=f"mirrorlake tables --run --once --table {chosen.name}",
            table=chosen.name,
        )
    writer = make_writer(context, chosen, owner="verify")
    writer.open()
    positions, session = writer.progress.positions, session_of(lake.spark)
    relays = {source: lake.load_relay(session.read, source) for source in chosen.topics}
    records = records_of_table(with_sources(relays), chosen)
    judged = writer.judge(before(records, positions)).persist()
    try:
        is_bad = F.col(FAULT).isNotNull() if chosen.config.bad_records != "null" else F.lit(False)
        rows = judged.where(~is_bad & ~F.col(FILTERED))
        wanted = newest_of_keys(rows).where(f"NOT {TOMBSTONE}") if chosen.config.mode == "upsert" else rows
        table_rows = lake.load_typed(session.read, chosen.name)
        in_relay = table_rows.join(judged.select(*_PLACE), _PLACE, "left_semi")
        bad = judged.where(is_bad & ~F.col(FILTERED))
        bad_count, wanted_count = bad.count(), wanted.count()
        found = _compared(wanted, in_relay)
        if bad_count:
            found = found.unionByName(_not_recorded(lake.meta(BAD_RECORDS), bad, chosen.name))
        kinds = Counter({row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()})
        return TableProof(
            table=chosen.name,
            records=judged.count(),
            rows=wanted_count - kinds["missing"] - kinds["different"] - kinds["doubled"],
            superseded=rows.count() - wanted_count,
            bad_records=bad_count,
            filtered=judged.where(FILTERED).count(),
            not_compared=table_rows.count() - in_relay.count(),
            findings=tuple(
                RowFinding(**{name.removeprefix("_"): value for name, value in one.asDict().items()})
                for one in found.orderBy(*_PLACE).limit(_SHOWN).collect()
            ),
            wrong=kinds.total(),
        )
    finally:
        judged.unpersist()


def _compared(wanted: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the records that differ, with `kind`: both sides as JSON text, which every type has."""
    from pyspark.sql import functions as F

    names = [name for name in rows.columns if name in wanted.columns and name not in _PLACE]
    content = F.to_json(F.struct(*(f"`{name}`" for name in names)))
    have = (
        rows.select(*_PLACE, content.alias("have"))
        .groupBy(*_PLACE)
        .agg(F.first("have").alias("have"), F.count("*").alias("times"))
    )
    want = wanted.select(*_PLACE, content.alias("want"))
    kind = (
        F.when(F.col("times").isNull(), "missing")
        .when(F.col("want").isNull(), "left over")
        .when(F.col("times") > 1, "doubled")
        .when(F.col("have") != F.col("want"), "different")
    )
    return (
        want.join(have, _PLACE, "full_outer").withColumn("kind", kind).where("kind IS NOT NULL").select("kind", *_PLACE)
    )


def _not_recorded(recorded: DataFrame, bad: DataFrame, name: str) -> DataFrame:
    from pyspark.sql import functions as F

    known = recorded.where(F.col("table_name") == name).select(*(F.col(at[1:]).alias(at) for at in _PLACE))
    return bad.select(*_PLACE).join(known, _PLACE, "left_anti").select(F.lit("not recorded").alias("kind"), *_PLACE)
