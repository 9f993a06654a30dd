"""The conditions of a MERGE of rows `s` into a table `t`, in words that Spark's SQL and DataFusion's share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClauses:
    """When rows are one, and when a row of the table is deleted, updated, or inserted; `flag` is a column of `s` alone."""

    match: str
    delete: str
    update: str
    insert: str
    flag: str
