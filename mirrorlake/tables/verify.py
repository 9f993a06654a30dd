"""Prove that a typed table has each relay record as a row, or tell why it has none (law E)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import BAD_RECORDS
from mirrorlake.render import JsonDisplayable, Sheet, badge, format_count, plural, table
from mirrorlake.tables.definition import TypedTable, find_table
from mirrorlake.tables.formats import PLACE
from mirrorlake.tables.progress import TableRelay, session_of
from mirrorlake.tables.writer import TableWriter, newest_of_keys

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
_COUNTED = ("rows", "superseded", "bad_records", "filtered", "not_compared")
# `want` and `have` are the content of a row by the fold and in the table.
_KIND = """
    CASE
        WHEN in_relay IS NULL THEN 'not_compared'
        WHEN want IS NOT NULL AND have IS NULL THEN 'missing'
        WHEN want IS NULL AND have IS NOT NULL THEN 'left over'
        WHEN times > 1 THEN 'doubled'
        WHEN want <> have THEN 'different'
        WHEN is_recorded AND _fault IS NULL THEN 'recorded'
        WHEN want IS NOT NULL THEN 'rows'
        WHEN _filtered THEN 'filtered'
        WHEN _fault IS NULL OR NOT quarantines THEN 'superseded'
        WHEN is_recorded THEN 'bad_records'
        ELSE 'not recorded'
    END
"""


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableProof(JsonDisplayable):
    """The comparison of a typed table with the records that the relays hold before the table's positions.

    `superseded` are records that a newer one of their key, or a tombstone, takes out, or that are past the table's retention,
    `not_compared` rows whose record the relays no longer hold, `findings` the first of `wrong` records.
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
        counts = {name.replace("_", " "): getattr(self, name) for name in _COUNTED}
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
    session, location, version = session_of(lake.spark), lake.typed_location(name), -1
    writer = TableWriter(context, chosen, session, owner="verify")
    while version != lake.version(location):
        # Positions and rows of one version, though a mirror writes the table meanwhile.
        version = lake.version(location)
        writer.open()
    rows = lake.load_typed(session.read.option("versionAsOf", version), name)
    relay = TableRelay(lake, chosen, session)
    judged = writer.judge(relay.before(writer.progress.positions)).persist()
    try:
        records = _judged(context, chosen, judged, writer.rows(judged), rows)
        counts = Counter({row["kind"]: row["count"] for row in records.groupBy("kind").count().collect()})
        wrong = sum(counts[kind] for kind in _SAYS)
        places = records.where(F.col("kind").isin(*_SAYS)).orderBy(*records.columns[1:])
        shown = places.limit(_SHOWN).collect() if wrong else []
    finally:
        judged.unpersist()
    return TableProof(
        table=name,
        records=counts.total() - counts["not_compared"],
        findings=tuple(RowFinding(**row.asDict()) for row in shown),
        wrong=wrong,
        **{kind: counts[kind] for kind in _COUNTED},
    )


def _judged(context: Context, chosen: TypedTable, records: DataFrame, rows: DataFrame, held: DataFrame) -> DataFrame:
    """Return the kind and the place of each record and each row that the table holds; both sides are compared as JSON text."""
    from pyspark.sql import functions as F

    lake, config = context.lake, chosen.config
    if config.mode == "upsert":
        rows = newest_of_keys(rows).where("NOT _tombstone")
    if config.retention is not None:
        # Older rows may have left, or leave at the next maintenance.
        young = F.col("_timestamp") >= F.lit(context.now() - config.retention)
        rows, held = rows.where(young), held.where(young)
    names = [f"`{name}`" for name in held.columns if name in rows.columns and name not in PLACE]
    how = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    content = F.to_json(F.struct(*names), how)
    have = held.groupBy(*PLACE).agg(F.first(content).alias("have"), F.count("*").alias("times"))
    bad = records.select(*PLACE).limit(0)
    if lake.exists(lake.meta_location(BAD_RECORDS)):
        recorded = lake.meta(BAD_RECORDS).where(F.col("table_name") == chosen.name)
        bad = recorded.select(*(F.col(at[1:]).alias(at) for at in PLACE)).distinct()
    found = (
        records.select(*PLACE, "_fault", "_filtered")
        .withColumns({"in_relay": F.lit(True), "quarantines": F.lit(config.bad_records != "null")})
        .join(rows.select(*PLACE, content.alias("want")), PLACE, "left")
        .join(have, PLACE, "full_outer")
        .join(bad.withColumn("is_recorded", F.lit(True)), PLACE, "left")
    )
    return found.select(F.expr(_KIND).alias("kind"), *(F.col(at).alias(at[1:]) for at in PLACE))
