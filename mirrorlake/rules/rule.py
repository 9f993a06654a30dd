"""Apply one rule to a batch: return the records that pass, and the withheld ones with the reason.

Null values pass rules that read the value: a tombstone deletes earlier records, and without it the target would never
delete records that the source has deleted. A predicate with `value IS NULL` decides for itself.

Reasons never contain data of a record.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.config.predicates import FAILED, FALSE, NOT_ASKED, NOT_JSON, TRUE, Predicate
from mirrorlake.config.schema import NameMatcher
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.json_path import Path
from mirrorlake.model.loops.hops import HOP_KEY
from mirrorlake.model.withheld import FILTERED, Withheld
from mirrorlake.rules.calls import call_function
from mirrorlake.rules.conditions import answers
from mirrorlake.rules.functions import RecordFunction
from mirrorlake.rules.headers import Flags, edit_headers, framed_rows, with_column
from mirrorlake.rules.json_fields import Hider, NotJson, Replace, keyed_hash, masked, nulled, removed
from mirrorlake.rules.withholding import Sieve

Outcome = tuple[pa.RecordBatch, tuple[Withheld, ...]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule that Spark's workers apply; its pickle is small.

    `of` is `value` or `key`, which `paths` lead into; the empty path is the whole key. `version` is the fingerprint of the rule's
    definition. Values in a schema registry's frame pass rules that read JSON: nobody but their reader knows their schema.
    """

    name: str
    version: str
    topics: NameMatcher
    action: str
    on_error: str = "quarantine"
    predicate: Predicate | None = None
    paths: tuple[Path, ...] = ()
    of: str = "value"
    key: bytes = field(default=b"", repr=False)
    dropped: NameMatcher | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    ignores_case: bool = False
    function: RecordFunction | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Outcome:
        if not len(records):
            return records, ()
        if self.action == "headers":
            return self._with_headers(records), ()
        sieve = Sieve(records, source, rule=self.name, version=self.version, on_error=self.on_error)
        if self.function is not None:
            return call_function(self.function, records, sieve), sieve.withheld()
        if self.predicate is not None:
            self._ask(self.predicate, source, records, sieve)
        else:
            records = self._with_hidden(records, sieve)
        return sieve.passed(records), sieve.withheld()

    def _ask(self, predicate: Predicate, source: SourcePartition, records: pa.RecordBatch, sieve: Sieve) -> None:
        values = records.column("value")
        framed = framed_rows(values) if predicate.reads_json else None
        if framed is None:
            found = answers(predicate, source, records)
        else:
            found = np.full(len(records), NOT_ASKED, np.int8)
            found[~framed] = answers(predicate, source, records.filter(pa.array(~framed)))
        kept_back: Flags = found == (FALSE if self.action == "keep" else TRUE)
        if predicate.reads_json and not predicate.tests_null:
            kept_back &= pc.is_valid(values).to_numpy(zero_copy_only=False)
        sieve.hold(kept_back, FILTERED, "")
        sieve.failed(found == NOT_JSON, "not JSON")
        sieve.failed(found == FAILED, "the predicate cannot be evaluated")

    def _with_hidden(self, records: pa.RecordBatch, sieve: Sieve) -> pa.RecordBatch:
        column = records.column(self.of)
        if () in self.paths:
            return with_column(
                records, self.of, pa.array([self._whole(item) for item in column.to_pylist()], column.type)
            )
        framed, values, hide = framed_rows(column), column.to_pylist(), self._hider
        broken, changed = np.zeros(len(records), np.bool_), False
        for row, value in enumerate(values):
            if value is None or (framed is not None and framed[row]):
                continue
            try:
                values[row] = hide(value)
            except NotJson:
                broken[row] = True
            changed |= values[row] is not value
        sieve.failed(broken, "not JSON")
        return with_column(records, self.of, pa.array(values, column.type)) if changed else records

    def _whole(self, item: bytes | None) -> bytes | None:
        """Hide a whole key; null stays null."""
        if item is None or self.action in ("null", "remove"):
            return None
        return hmac.digest(self.key, item, "sha256").hex().encode() if self.action == "hash" else WHOLE_MASK

    @cached_property
    def _hider(self) -> Hider:
        return Hider(self.paths, keyed_hash(self.key) if self.action == "hash" else _REPLACE[self.action])

    def _with_headers(self, records: pa.RecordBatch) -> pa.RecordBatch:
        column = records.column("headers")
        if column.null_count == len(column):
            return records
        # Without its provenance header a record would loop for ever.
        names: list[str] = pc.unique(pc.list_flatten(column).field(0)).to_pylist()
        there = [name for name in names if name != HOP_KEY]
        dropped = [name for name in there if self.dropped is not None and self.dropped.matches(name)]
        wanted = {self._folded(old): new for old, new in self.renamed.items()}
        renamed = {
            name: wanted[self._folded(name)] for name in there if name not in dropped and self._folded(name) in wanted
        }
        if not dropped and not renamed:
            return records
        return with_column(records, "headers", edit_headers(column, dropped=dropped, renamed=renamed))

    def _folded(self, name: str) -> str:
        return name.casefold() if self.ignores_case else name


WHOLE_MASK = b"***"
_REPLACE: dict[str, Replace] = {"mask": masked, "null": nulled, "remove": removed}
