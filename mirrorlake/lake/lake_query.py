"""A query over tables of the lake: its text, and the table of each name in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.lake.schema import RELAY, SIDE_TABLES
from mirrorlake.lake.table_schema import TableSchema
from mirrorlake.lake.translation import list_tables

if TYPE_CHECKING:
    import pyarrow as pa

Relays = Mapping[str, tuple[str, RelayPart | None]]
"""The relays that a query names in braces: the alias of each source, and the needed part (None: all of it)."""

_TABLES = {table.name: table for table in (RELAY, *SIDE_TABLES)}


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table of the lake that a query names; for a relay the source's alias and the needed part."""

    table: TableSchema
    alias: str = ""
    part: RelayPart | None = None


@dataclass(frozen=True, slots=True)
class LakeQuery:
    """A query in Spark's SQL (see `Lake.query`).

    Names in braces are tables, `:name` is a value. `tables` go before tables of the lake. With `cache` the answer is kept until
    a table has a new version; not for given tables.
    """

    text: str
    relays: Relays = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    cache: bool = False

    @property
    def given(self) -> dict[str, pa.Table]:
        return {name: self.tables[name] for name in list_tables(self.text) if name in self.tables}

    @property
    def lake_tables(self) -> dict[str, NamedTable]:
        names = [name for name in list_tables(self.text) if name not in self.tables]
        return {
            name: NamedTable(RELAY, *self.relays[name]) if name in self.relays else NamedTable(_TABLES[name])
            for name in names
        }
