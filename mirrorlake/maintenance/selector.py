"""Choose the records to erase: by key, by header, or by predicate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import PydanticCustomError

from mirrorlake.config.predicates import Predicate, compile_predicate
from mirrorlake.errors import UsageError
from mirrorlake.model.flow import SourcePartition
from mirrorlake.rules import FALSE, TRUE, answers

Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class Selector:
    """Exactly one of a key, a header and a predicate, which identifies the records."""

    key: bytes | None = None
    header: tuple[str, bytes] | None = None
    where: str = ""

    def __post_init__(self) -> None:
        given = [self.key is not None, self.header is not None, bool(self.where)]
        if sum(given) != 1:
            raise UsageError(
                f"{sum(given)} ways to choose the records" if any(given) else "no records are named",
                consequence="nothing was erased",
                remedy="give one of --key K, --header NAME=VALUE and --where PREDICATE",
            )
        _ = self.predicate

    @cached_property
    def predicate(self) -> Predicate | None:
        if not self.where:
            return None
        try:
            return compile_predicate(self.where)
        except PydanticCustomError as error:
            [found, *_] = (error.context or {})["findings"]
            raise UsageError(
                f"the predicate {found.problem}", consequence="nothing was erased", remedy=found.remedy
            ) from error

    @property
    def columns(self) -> tuple[str, ...]:
        """The relay columns that the selector reads, beside partition and offset."""
        if self.key is not None:
            return ("key",)
        if self.header is not None:
            return ("headers",)
        return ("timestamp", "key", "value", "headers")

    def chosen(self, source: SourcePartition, rows: pa.RecordBatch) -> tuple[Flags, Flags]:
        """Return which rows are chosen, and which the predicate cannot decide, as where values are not JSON."""
        nobody = np.zeros(len(rows), bool)
        if self.predicate is not None:
            found = answers(self.predicate, source, rows)
            return found == TRUE, (found != TRUE) & (found != FALSE)
        if self.key is not None:
            same = pc.equal(rows.column("key"), pa.scalar(self.key, rows.column("key").type))
            return pc.fill_null(same, False).to_numpy(zero_copy_only=False), nobody
        return self._with_header(rows.column("headers")), nobody

    def _with_header(self, column: pa.ListArray) -> Flags:
        assert self.header is not None  # noqa: S101  checked where it is made
        name, value = self.header
        found = np.zeros(len(column), bool)
        pairs = column.flatten()
        if len(pairs):
            names, values = pairs.field("key"), pairs.field("value")
            same = pc.and_(pc.equal(names, name), pc.equal(values, pa.scalar(value, values.type)))
            found[pc.list_parent_indices(column).filter(pc.fill_null(same, False)).to_numpy()] = True
        return found

    @property
    def by(self) -> str:
        """The kind of the choice, never its value."""
        if self.key is not None:
            return "key"
        return "predicate" if self.header is None else f"header {self.header[0]}"
