"""From Spark's SQL to DuckDB's; kept between processes, since a command loads sqlglot, and parses, longer than DuckDB answers.

A translation depends on its text, on sqlglot and on this file: where one of them changes, it is made again.
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
# Some questions name what they are about: a bound for what nobody asks twice.
_MOST_KEPT, _LONGEST_KEPT = 1_000, 20_000
# Releases that are used side by side keep theirs.
_MOST_TRANSLATORS = 4


def list_tables(text: str) -> tuple[str, ...]:
    """List the tables that a question names in braces."""
    return tuple(dict.fromkeys(_TABLE.findall(text)))


@lru_cache(maxsize=256)
def in_duckdb(text: str) -> str:
    """Translate a question; the names of its tables lose their braces."""
    folder = _folder()
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
            _drop_old(folder.parent)
    return found


def _drop_old(kept: Path) -> None:
    """Remove what other releases of this package, or of sqlglot, have kept, but for those that were at work last."""
    import shutil

    newest_first = sorted(kept.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in newest_first[_MOST_TRANSLATORS:]:
        shutil.rmtree(folder)


@cache
def _folder() -> Path | None:
    """Return where translations of this sqlglot by this file are kept; None where its version cannot be told without it."""
    spec = find_spec("sqlglot")
    with suppress(OSError):
        # `importlib.metadata` would take 30 ms to say it.
        version = Path(str(spec and spec.origin)).with_name("_version.py").read_bytes()
        own: Any = __spec__
        made_by = hashlib.sha256(version + own.loader.get_data(__file__)).hexdigest()[:16]
        return cache_directory() / "sql" / made_by
    return None


def _translated(text: str) -> str:
    # 50 ms, and 30 for its dialects.
    import sqlglot

    tree = sqlglot.parse_one(_TABLE.sub(r"\1", text), read="spark")
    return tree.transform(_word_of_duckdb).sql(dialect="duckdb", unsupported_level=sqlglot.ErrorLevel.IGNORE)


def _word_of_duckdb(node: exp.Expr) -> exp.Expr:
    """Replace what sqlglot leaves as it stands in Spark's SQL, or gives another meaning."""
    from sqlglot import exp

    if isinstance(node, exp.Quantile):
        # Spark's percentile interpolates.
        return exp.Anonymous(this="quantile_cont", expressions=[node.this, node.args["quantile"]])
    if isinstance(node, exp.Anonymous) and node.name.lower() == "timestamp_micros":
        return exp.Anonymous(this="make_timestamptz", expressions=node.expressions)
    if isinstance(node, exp.UnixMillis):
        # epoch_ms takes the calendar of a time zone: 3 times as long.
        micros = exp.Anonymous(this="epoch_us", expressions=[node.this])
        return exp.Paren(this=exp.IntDiv(this=micros, expression=exp.Literal.number(1000)))
    return node
