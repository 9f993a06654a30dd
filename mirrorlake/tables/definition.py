"""The typed tables of a mirror: the settings' entries, and the table that each source's topic belongs to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from mirrorlake.config import closest
from mirrorlake.config.schema import MirrorConfig, TableConfig
from mirrorlake.context import Context
from mirrorlake.errors import ColumnUnknown, UsageError
from mirrorlake.lake import APPEND_ONLY, QUARANTINE, REMOVABLE, SIDE_TABLES, WITHHELD, newest_topics
from mirrorlake.model.parked import table_stream
from mirrorlake.rules import View, make_flow_view
from mirrorlake.tables.registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SETTINGS = "mirrorlake.settings"
"""The table property with the settings that a table was made with."""
RECORDS = "records"
"""The view over all relays in SQL."""
# What another value of a setting means for the rows that are there, of which no table has two kinds.
_WAITS = "its stream waits"
MEANINGS = {
    **dict.fromkeys(("mode", "keys", "values"), _WAITS),
    **dict.fromkeys(("schema", "columns"), "older rows stay as they are"),
    "partition_by": "all rows, also new ones, lie as they did",
}


@dataclass(frozen=True, slots=True)
class TypedTable:
    """A typed table: its entry of the settings, and its topics by source, sorted, as far as they are known.

    `fault` is why it cannot be written; `is_hidden` whether a table of mirrorlake has its name in SQL.
    """

    name: str
    config: TableConfig
    topics: Mapping[str, tuple[str, ...]] = field(compare=False)
    fault: UsageError | None = field(default=None, compare=False)
    is_hidden: bool = field(default=False, compare=False)

    @property
    def stream(self) -> str:
        """The name of the stream that keeps the table."""
        return table_stream(self.name)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the table's rows depend on."""
        known = self.config.model_dump(mode="json", by_alias=True)
        return {key: known[key] for key in MEANINGS}

    @property
    def properties(self) -> dict[str, str]:
        """The table properties of a new table; SETTINGS has the settings that its rows depend on."""
        return {**APPEND_ONLY, **REMOVABLE, SETTINGS: json.dumps(self.settings, sort_keys=True)}

    @property
    def rebuilding(self) -> str:
        """The command that builds it again."""
        return f"mirrorlake tables --rebuild {self.name} --apply"

    def refusal(self, cause: str, remedy: str, kind: type[UsageError] = UsageError) -> UsageError:
        """Return the error that keeps the table from being written."""
        return kind(cause, consequence="no record is written to it", remedy=remedy, table=self.name)

    def edits(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return, by setting, how the settings differ from those that the table, by its properties, was made with."""
        made = json.loads(properties.get(SETTINGS, "{}"))
        return {
            key: f"{key}: {made[key]}, and the settings say {now}"
            for key, now in self.settings.items()
            if key in made and made[key] != now
        }

    def refuse_edits(self, properties: Mapping[str, str]) -> None:
        """Refuse settings by which the table's rows would mean two things."""
        for key, edit in self.edits(properties).items():
            if MEANINGS[key] == _WAITS:
                raise self.refusal(
                    f"the table {self.name} was made with {edit}",
                    f"{self.rebuilding}, give the new one another `name:`, or take the edit back",
                )

    def refuse_partitions(self, columns: StructType) -> None:
        """Refuse columns by which the table cannot be partitioned as the settings say: a later record may bring one."""
        kinds = {one.name: one.dataType.simpleString() for one in columns.fields}
        for at, name in enumerate(self.config.partition_by):
            kind = kinds.get(name, "")
            if not kind or re.match("array|binary|map|struct", kind):
                why = f"its column {name} is {kind[:60]}" if kind else f"its first records have no column {name}"
                raise self.refusal(
                    f"the table {self.name} cannot be partitioned ({self.config.place}.partition_by[{at}]): {why}",
                    "name a column of few values, derive it in `columns:`, or write its type in `schema:`; then resume the table",
                    UsageError if kind else ColumnUnknown,
                )


def list_tables(config: MirrorConfig, topics: Mapping[str, Iterable[str]]) -> list[TypedTable]:
    """List the typed tables with a topic among those of each source, sorted by name."""
    relays = (f"relay_{view_name(alias)}".lower() for alias in config.sources)
    own = {RECORDS, WITHHELD, QUARANTINE, *relays, *(table.name for table in SIDE_TABLES)}
    made: dict[str, list[TypedTable]] = {}
    for entry in config.tables:
        for name, of_table in _tables_of(entry, topics).items():
            table = TypedTable(name, entry, of_table, is_hidden=view_name(name).lower() in own)
            made.setdefault(name, []).append(table)
    return [replace(several[0], fault=_fault(config, several)) for _, several in sorted(made.items())]


def _tables_of(entry: TableConfig, topics: Mapping[str, Iterable[str]]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the tables that an entry makes of the topics of each source: their topics, by source, by name."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for source, names in sorted(topics.items()):
        for topic in sorted(names):
            if entry.selects(source, topic):
                of_table = found.setdefault(entry.table_name(source, topic), {})
                of_table[source] = (*of_table.get(source, ()), topic)
    return found


def _fault(config: MirrorConfig, several: list[TypedTable]) -> UsageError | None:
    """Return why a table cannot be written: two entries make it, its name is mirrorlake's own, no registry has its schemas."""
    table, entry = several[0], several[0].config
    if len(several) > 1:
        places = f"{entry.place} and {several[1].config.place}"
        return table.refusal(
            f"two entries of `tables:` make the table {table.name}: {places}",
            "give one of them another `name:`, or leave its topics out by `exclude_topics:`",
        )
    if table.is_hidden and config.lake.namespace() is not None:
        cause = f"mirrorlake has a table {table.name} of its own in the catalog ({entry.place})"
        return table.refusal(cause, "give it another `name:`")
    bare = config.without_registry(entry, table.topics)
    return _registry_unknown_error(entry, bare[0]) if bare else None


def _registry_unknown_error(entry: TableConfig, source: str) -> UsageError:
    return UsageError(
        f"the records of {source} name schemas, and its schema registry is not known ({entry.place})",
        consequence="no record is written to the table",
        remedy=f"write `registry: {{url: ...}}` in {entry.place} or in clusters.{source}, or name others under `sources:`",
    )


def view_name(topic: str) -> str:
    """Return the name of a topic or a table as an SQL identifier without quotes."""
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return f"_{name}" if name[0].isdigit() else name


def find_tables(context: Context) -> list[TypedTable]:
    """List the typed tables of the landed topics, sorted by name."""
    config, lake = context.config, context.lake
    if not config.tables:
        return []
    return list_tables(config, {one: newest_topics(lake, one, "source", missing_ok=True) for one in config.sources})


def find_table(context: Context, name: str, *, faulty_ok: bool = False) -> TypedTable:
    """Return the typed table of a name, which must exist and have no fault."""
    found = {one.name: one for one in find_tables(context)}
    if name not in found:
        raise UsageError(
            f"no entry of `tables:` makes the table {name} of a landed topic",
            consequence="nothing was done",
            remedy=f"{closest(name, found)}mirrorlake tables lists them",
            table=name,
        )
    if (fault := found[name].fault) is not None and not faulty_ok:
        raise fault
    return found[name]


def registries_of(context: Context, entry: TableConfig) -> Callable[[str], SchemaRegistry]:
    """Return a function that returns the schema registry of a source's records: that of the entry, or of the source."""

    @cache
    def of_source(source: str) -> SchemaRegistry:
        given = entry.registry or context.config.cluster(source).registry
        if given is None:
            raise _registry_unknown_error(entry, source)
        return SchemaRegistry(given.options(), name=f"of {entry.place if entry.registry else source}")

    return of_source


def views_of(context: Context, entry: TableConfig) -> dict[str, View]:
    """Return the rules that apply to the records of a table first, by source."""
    flows = [context.config.flow(name) for name in entry.through]
    return {flow.source: view for flow in flows if (view := make_flow_view(flow)) is not None}
