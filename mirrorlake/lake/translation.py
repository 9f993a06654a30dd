"""Translate Spark's SQL to DuckDB's, with a cache on disk: loading sqlglot and parsing takes longer than DuckDB's answer.

A translation depends on its text, on sqlglot and on this file, and is made again after any of them changed.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlake.runtime import cache_directory, write_atomically

if TYPE_CHECKING:
    from sqlglot import exp

_TABLE = re.compile(r"\{(\w+)\}")
# Some queries have names in their text and are never repeated, so the cache is bounded.
_MOST_KEPT, _LONGEST_KEPT = 1_000, 20_000
# Releases that are used side by side have a cache each.
_MOST_TRANSLATORS = 4


def list_tables(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_TABLE.findall(text)))


@lru_cache(maxsize=256)
def in_duckdb(text: str, *, has_braces: bool = True) -> str:
    """Translate a query; without the braces around its tables, if it has them."""
    folder = _folder()
    text = _TABLE.sub(r"\1", text) if has_braces else text
    if folder is None or len(text) > _LONGEST_KEPT:
        return _translated(text)
    place = folder / f"{hashlib.sha256(text.encode()).hexdigest()}.sql"
    with suppress(OSError):
        # A machine that lost its power may leave an empty file.
        if (kept := place.read_text(encoding="utf-8")).endswith("\n"):
            return kept[:-1]
    found = _translated(text)
    with suppress(OSError):
        is_new = not folder.is_dir()
        if is_new or sum(1 for _ in folder.iterdir()) < _MOST_KEPT:
            write_atomically(place, f"{found}\n")
        if is_new:
            import shutil

            # Of the caches of other releases of this package or of sqlglot, only the newest ones stay.
            newest_first = sorted(folder.parent.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
            for old in newest_first[_MOST_TRANSLATORS:]:
                shutil.rmtree(old)
    return found


@cache
def _folder() -> Path | None:
    """Return the cache folder of this file and this sqlglot, or None if its version is unknown without importing it."""
    spec = find_spec("sqlglot")
    with suppress(OSError):
        # `importlib.metadata` would take 30 ms.
        version = Path(str(spec and spec.origin)).with_name("_version.py").read_bytes()
        own: Any = __spec__
        made_by = hashlib.sha256(version + own.loader.get_data(__file__)).hexdigest()[:16]
        return cache_directory() / "sql" / made_by
    return None


def _translated(text: str) -> str:
    # The import takes 50 ms, and its dialects 30. By its name, another thread may get a dialect that is half made.
    import sqlglot
    from sqlglot.dialects.duckdb import DuckDB
    from sqlglot.dialects.spark import Spark

    tree = sqlglot.parse_one(text, read=Spark)
    return tree.transform(_word_of_duckdb).sql(dialect=DuckDB, unsupported_level=sqlglot.ErrorLevel.IGNORE)


def _word_of_duckdb(node: exp.Expr) -> exp.Expr:
    """Replace a node that sqlglot leaves untranslated or changes in meaning."""
    from sqlglot import exp

    if isinstance(node, exp.Quantile):
        # Spark's percentile interpolates.
        return exp.Anonymous(this="quantile_cont", expressions=[node.this, node.args["quantile"]])
    if isinstance(node, exp.Anonymous) and node.name.lower() == "timestamp_micros":
        return exp.Anonymous(this="make_timestamptz", expressions=node.expressions)
    if isinstance(node, exp.Left):
        # DuckDB's `left` takes no bytes.
        return exp.Anonymous(this="array_slice", expressions=[node.this, exp.Literal.number(1), node.expression])
    if isinstance(node, exp.UnixMillis):
        # epoch_ms uses the calendar of a time zone and takes 3 times as long.
        micros = exp.Anonymous(this="epoch_us", expressions=[node.this])
        return exp.Paren(this=exp.IntDiv(this=micros, expression=exp.Literal.number(1000)))
    return node
