"""The typed tables of a mirror: the settings' entries, and the table that each source's topic belongs to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from mirrorlake.config import closest
from mirrorlake.config.schema import MirrorConfig, TableConfig
from mirrorlake.context import Context
from mirrorlake.errors import ColumnUnknown, UsageError
from mirrorlake.lake import APPEND_ONLY, REMOVABLE, SIDE_TABLES, Lake, newest_topics
from mirrorlake.model.parked import table_stream
from mirrorlake.rules import View, make_flow_view
from mirrorlake.tables.registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SETTINGS = "mirrorlake.settings"
"""The table property with the settings that a table was made with."""
RECORDS = "records"
"""The view over all relays in SQL."""
# What a row means and how it is read: the rows of a table cannot be of two kinds.
_MEANING = ("mode", "keys", "values")
_STAYS = {"partition_by": "all rows, also new ones, lie as they did"}


@dataclass(frozen=True, slots=True)
class TypedTable:
    """A typed table.

    Attributes:
        config: the entry of the settings.
        topics: its topics by source, sorted, as far as they are known.
        fault: why it cannot be written, or None.
        is_hidden: whether a table of mirrorlake has its name in SQL.
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
        one = self.config
        meaning = {key: getattr(one, key) for key in _MEANING}
        return {**meaning, "schema": one.schema_text, "columns": one.columns, "partition_by": [*one.partition_by]}

    @property
    def properties(self) -> dict[str, str]:
        """The table properties of a new table; SETTINGS has the settings that its rows depend on."""
        return {**APPEND_ONLY, **REMOVABLE, SETTINGS: json.dumps(self.settings, sort_keys=True)}

    def edits(self, properties: Mapping[str, str]) -> dict[str, tuple[Any, Any]]:
        """Return the settings that the table, by its properties, was made with otherwise: each before and now."""
        made = json.loads(properties.get(SETTINGS, "{}"))
        return {key: (made[key], now) for key, now in self.settings.items() if key in made and made[key] != now}

    def meaning(self, key: str) -> str:
        """Say what another value of a setting means for the rows that are there."""
        said = "its stream waits" if key in _MEANING else _STAYS.get(key, "older rows stay as they are")
        return f"{said} until it is built again: {self.rebuilding}"

    @property
    def rebuilding(self) -> str:
        """The command that builds it again."""
        return f"mirrorlake tables --rebuild {self.name} --apply"

    def refuse_edits(self, properties: Mapping[str, str]) -> None:
        """Refuse settings by which the table's rows would mean two things.

        Raises:
            UsageError: they do.
        """
        for key, (before, now) in self.edits(properties).items():
            if key in _MEANING:
                raise UsageError(
                    f"the table {self.name} was made with {key}: {before}, and the settings say {now}",
                    consequence="no record is written to it",
                    remedy=f"{self.rebuilding}, give the new one another `name:`, or write {key}: {before}",
                    table=self.name,
                )

    def refuse_partitions(self, columns: StructType) -> None:
        """Refuse columns by which the table cannot be partitioned as the settings say.

        Raises:
            ColumnUnknown: no record has brought one.
            UsageError: its type is none of a partition.
        """
        kinds = {one.name: one.dataType.simpleString() for one in columns.fields}
        for at, name in enumerate(self.config.partition_by):
            if name in kinds and not re.match("array|binary|map|struct", kinds[name]):
                continue
            why = (
                f"its column {name} is {kinds[name][:60]}"
                if name in kinds
                else f"its first records have no column {name}"
            )
            raise (UsageError if name in kinds else ColumnUnknown)(
                f"the table {self.name} cannot be partitioned by {name} ({self.config.place}.partition_by[{at}]): {why}",
                consequence="no record is written to it",
                remedy="name a column of few values, derive it in `columns:`, or write its type in `schema:`; then resume the table",
                table=self.name,
            )


def list_tables(config: MirrorConfig, topics: Mapping[str, Iterable[str]]) -> list[TypedTable]:
    """List the typed tables with a topic among those of each source, sorted by name.

    A table has a fault if two entries of the settings make it, if a source has no registry for its records, and in a catalog if it has
    the name of one of mirrorlake's own.
    """
    own, is_catalog = own_names(config), config.lake.namespace() is not None
    entries: dict[str, TableConfig] = {}
    found: dict[str, dict[str, list[str]]] = {}
    faults: dict[str, UsageError] = {}
    for entry in config.tables:
        for source, topic in ((source, topic) for source, names in sorted(topics.items()) for topic in sorted(names)):
            if not entry.selects(source, topic):
                continue
            name = entry.table_name(source, topic)
            if entries.setdefault(name, entry) is not entry:
                faults[name] = UsageError(
                    f"two entries of `tables:` make the table {name}: {entries[name].place} and {entry.place}",
                    consequence="no record is written to it",
                    remedy="give one of them another `name:`, or leave its topics out by `exclude_topics:`",
                    table=name,
                )
            if is_catalog and view_name(name).lower() in own:
                faults[name] = UsageError(
                    f"mirrorlake has a table {name} of its own in the catalog ({entry.place})",
                    consequence="no record is written to the typed one",
                    remedy="give it another `name:`",
                    table=name,
                )
            if config.without_registry(entry, [source]):
                faults[name] = UsageError(
                    f"the records of {source} {topic} name schemas, and its schema registry is not known ({entry.place})",
                    consequence="no record is written to it",
                    remedy=f"write `registry: {{url: ...}}` in {entry.place} or in clusters.{source}, or name others under `sources:`",
                    table=name,
                )
            found.setdefault(name, {}).setdefault(source, []).append(topic)
    return [
        TypedTable(
            name,
            entries[name],
            {source: tuple(names) for source, names in found[name].items()},
            faults.get(name),
            is_hidden=view_name(name).lower() in own,
        )
        for name in sorted(found)
    ]


def own_names(config: MirrorConfig) -> frozenset[str]:
    relays = (f"relay_{view_name(alias)}".lower() for alias in config.sources)
    return frozenset((RECORDS, *relays, *(table.name for table in SIDE_TABLES)))


def view_name(topic: str) -> str:
    """Return the name of a topic or a table as an SQL identifier without quotes."""
    name = re.sub(r"\W", "_", topic, flags=re.ASCII)
    return f"_{name}" if name[0].isdigit() else name


def find_tables(context: Context) -> list[TypedTable]:
    """List the typed tables of the landed topics, sorted by name."""
    config = context.config
    return list_tables(config, landed_topics(context.lake, config.sources)) if config.tables else []


def find_table(context: Context, name: str) -> TypedTable:
    """Return the typed table of a name, which must exist and have no fault."""
    found = {one.name: one for one in find_tables(context)}
    if name not in found:
        raise unknown_table_error(name, found)
    if (fault := found[name].fault) is not None:
        raise fault
    return found[name]


def unknown_table_error(name: str, known: Collection[str]) -> UsageError:
    """Return the error for a name that no entry of the settings makes a table of."""
    return UsageError(
        f"no entry of `tables:` makes the table {name} of a landed topic",
        consequence="nothing was done",
        remedy=f"{closest(name, known)}name one of: {', '.join(known)}" if known else "mirrorlake tables lists them",
        table=name,
    )


def landed_topics(lake: Lake, sources: Iterable[str]) -> dict[str, list[str]]:
    """Return the topics that were observed on each source, from the table `metadata`."""
    return {source: sorted(newest_topics(lake, source, "source", missing_ok=True)) for source in sources}


def registries_of(context: Context, entry: TableConfig) -> Callable[[str], SchemaRegistry]:
    """Return a function that returns the schema registry of a source's records: that of the entry, or of the source."""
    if entry.registry is not None:
        registry = SchemaRegistry(entry.registry.options(), name=f"of {entry.place}")
        return lambda _: registry

    @cache
    def of_source(source: str) -> SchemaRegistry:
        if (given := context.config.cluster(source).registry) is None:
            raise UsageError(
                f"the records of {source} name schemas, and its schema registry is not known",
                consequence="the table is not written",
                remedy=f"write `registry: {{url: ...}}` beside `values:`, or in clusters.{source}",
            )
        return SchemaRegistry(given.options(), name=f"of {source}")

    return of_source


def views_of(context: Context, entry: TableConfig) -> dict[str, View]:
    """Return the rules that apply to the records of a table first, by source."""
    flows = [context.config.flow(name) for name in entry.through]
    return {flow.source: view for flow in flows if (view := make_flow_view(flow)) is not None}
