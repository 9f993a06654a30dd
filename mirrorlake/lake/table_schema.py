"""The definition of a lake table: its columns, comments and properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

APPEND_ONLY = {
    "delta.appendOnly": "true",
    # A log checkpoint is a synchronous Spark job; at one batch a second the default of 10 would run it every 10 s.
    "delta.checkpointInterval": "100",
    "delta.enableDeletionVectors": "false",
    "delta.autoOptimize.optimizeWrite": "false",
    "delta.autoOptimize.autoCompact": "false",
    "delta.logRetentionDuration": "interval 30 days",
}

# Table properties that allow rows to be deleted.
REMOVABLE = {"delta.appendOnly": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """A table: columns as `name -> (SQL type, comment)`, its comment, its Delta properties, and its partition columns."""

    name: str
    comment: str
    columns: Mapping[str, tuple[str, str]]
    properties: Mapping[str, str] = field(default_factory=lambda: APPEND_ONLY)
    partition_by: tuple[str, ...] = ()

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, (kind, _) in self.columns.items())


def measured_columns(configuration: Mapping[str, Any]) -> list[str]:
    """Return the columns with statistics by a table's properties, or [] for all columns."""
    named = str(configuration.get("delta.dataSkippingStatsColumns") or "")
    return named.split(",") if named else []
