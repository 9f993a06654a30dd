"""The typed tables of a mirror: the settings' entries, and the table that each source's topic belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mirrorlake.config.schema import MirrorConfig, TableConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import Lake, newest_topics
from mirrorlake.model.parked import table_stream


@dataclass(frozen=True, slots=True)
class TypedTable:
    """A typed table.

    Attributes:
        config: the entry of the settings.
        topics: its topics by source, sorted, as far as they are known.
        fault: why it cannot be written, or None.
    """

    name: str
    config: TableConfig
    topics: Mapping[str, tuple[str, ...]] = field(compare=False)
    fault: UsageError | None = field(default=None, compare=False)

    @property
    def stream(self) -> str:
        """The name of the stream that keeps the table."""
        return table_stream(self.name)


def list_tables(config: MirrorConfig, topics: Mapping[str, Iterable[str]]) -> list[TypedTable]:
    """List the typed tables with a topic among those of each source, sorted by name.

    A table that two entries of the settings make has a fault.
    """
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
            found.setdefault(name, {}).setdefault(source, []).append(topic)
    return [
        TypedTable(
            name, entries[name], {source: tuple(names) for source, names in found[name].items()}, faults.get(name)
        )
        for name in sorted(found)
    ]


def find_tables(context: Context) -> list[TypedTable]:
    """List the typed tables of the landed topics, sorted by name."""
    config = context.config
    return list_tables(config, landed_topics(context.lake, config.sources)) if config.tables else []


def landed_topics(lake: Lake, sources: Iterable[str]) -> dict[str, list[str]]:
    """Return the topics that were observed on each source, from the table `metadata`."""
    return {source: sorted(newest_topics(lake, source, "source", missing_ok=True)) for source in sources}
