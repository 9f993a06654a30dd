"""Predicates of rules: SQL as Spark writes it, checked when the file is read, translated to what DuckDB evaluates.

A predicate sees the columns `topic, partition, offset, timestamp, key, headers` and the members of the JSON `value`. JSON
has no types that could be relied on, so a member is text, SQL NULL where it is missing or JSON null, and is cast by
`TRY_CAST` to the type of what it is compared with. Nothing in a predicate may depend on the clock, on chance or on
another record: a second run must withhold the same records (law F).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirrorlake.config.faults import SettingsFault, did_you_mean, fault_error, raise_any
from mirrorlake.config.predicates.evaluation import engine
from mirrorlake.model.json_path import Index, Member, Path, PathError, parse_path

_DECLARED = {
    "string": "VARCHAR",
    **dict.fromkeys(("double", "float"), "DOUBLE"),
    **dict.fromkeys(("int", "long", "bigint"), "BIGINT"),
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "date": "DATE",
}
_DECIMAL = re.compile(r"decimal\(\s*([1-9]|[12]\d|3[0-8])\s*,\s*(\d|[12]\d|3[0-8])\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """A predicate as DuckDB evaluates it on a batch.

    Attributes:
        text: as it was written.
        sql: the condition, over the columns of `batch`, `f0, f1, ...` and `h0, h1, ...`.
        pointers: the members of `value` that f0, f1, ... stand for, as JSON pointers (RFC 6901).
        headers: the headers that h0, h1, ... stand for.
        columns: the columns of the record that it reads.
        tests_null: it asks itself whether the value is null.
    """

    text: str
    sql: str
    pointers: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    tests_null: bool = False

    @property
    def reads_json(self) -> bool:
        """Tell whether the value has to be JSON."""
        return bool(self.pointers)

    @property
    def query(self) -> str:
        """Return the query whose only column `p` says whether the condition is true of each row of `batch`, in order."""
        if not self.pointers:
            return f"SELECT ({self.sql}) IS TRUE AS p FROM batch"  # noqa: S608  built from a checked tree
        paths = ", ".join(_quoted(pointer) for pointer in self.pointers)
        members = ", ".join(f"f[{place}] AS f{place - 1}" for place in range(1, len(self.pointers) + 1))
        # Materialized: the value is parsed once a record, and of every record, whatever the optimizer makes of the rest.
        return (
            f"WITH parsed AS MATERIALIZED (SELECT *, json_extract_string(value, [{paths}]) AS f FROM batch), "  # noqa: S608
            f"members AS (SELECT *, {members} FROM parsed) SELECT ({self.sql}) IS TRUE AS p FROM members"
        )


def declared_fields(fields: Mapping[str, str]) -> dict[Path, str]:
    """Return the members that `fields` names, with DuckDB's type.

    Raises:
        PydanticCustomError: a path or a type cannot be read.
    """
    found, findings = {}, []
    for name, type_name in fields.items():
        try:
            path = parse_path(name)
        except PathError as error:
            findings.append(SettingsFault((name,), error.problem, error.remedy))
            continue
        if not all(isinstance(step, Member | Index) for step in path):
            findings.append(SettingsFault((name,), f"'{name}' names several members", "name one, like address.city"))
        declared = _declared_type(type_name)
        if declared is None:
            known = [*_DECLARED, "decimal(p, s)"]
            findings.append(SettingsFault((name,), f"'{type_name}' is not a type", did_you_mean(type_name, known)))
        else:
            found[path] = declared
    raise_any(findings)
    return found


def _declared_type(name: str) -> str | None:
    word = name.strip().lower()
    if match := _DECIMAL.fullmatch(word):
        return f"DECIMAL({match.group(1)}, {match.group(2)})"
    return _DECLARED.get(word)


def compile_predicate(text: str, fields: Mapping[Path, str] | None = None) -> Predicate:
    """Return a predicate that is known to work.

    Args:
        text: a condition in Spark's SQL.
        fields: the members of `value` with their types (`declared_fields`); None where any may be named.

    Raises:
        PydanticCustomError: it does not parse, or names something unknown; says what, and what may have been meant.

    Example:
        >>> compile_predicate("value.region = 'eu' AND value.amount > 10").pointers
        ('/region', '/amount')
    """
    # Late: sqlglot takes 0.1 s to import, and most flows have no rules.
    from mirrorlake.config.predicates.types import Translation

    tree = _parse(text)
    translation = Translation(fields or {})
    try:
        sql = translation.condition(tree).sql(dialect="duckdb", comments=False)
    except RecursionError:
        raise fault_error("the predicate is nested too deeply", "split it into several rules") from None
    predicate = Predicate(
        text=text,
        sql=sql,
        pointers=tuple(translation.pointers),
        headers=tuple(translation.headers),
        columns=tuple(sorted(translation.columns)),
        tests_null=translation.tests_null,
    )
    _refuse_unbindable(predicate)
    return predicate


def _parse(text: str) -> Any:
    import sqlglot
    from sqlglot.errors import ParseError, SqlglotError

    try:
        trees = [tree for tree in sqlglot.parse(text, read="spark") if tree is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        problem = f"does not parse near '{first.get('highlight')}' (column {first.get('col')})"
        raise fault_error(
            problem, "write a SQL condition; names that are SQL words are written value['select']"
        ) from None
    except (SqlglotError, RecursionError):
        raise fault_error("does not parse", "look for a quote or a bracket that is not closed") from None
    if not trees:
        raise fault_error("the predicate is empty", "write a SQL condition, like value.region = 'eu'")
    if len(trees) > 1:
        raise fault_error("these are several statements", "write one condition")
    return trees[0]


def _refuse_unbindable(predicate: Predicate) -> None:
    import duckdb

    headers = "".join(f", h{place} VARCHAR" for place in range(len(predicate.headers)))
    columns = 'topic VARCHAR, partition INTEGER, "offset" BIGINT, timestamp TIMESTAMPTZ, key VARCHAR, tombstone BOOLEAN'
    with engine() as connection:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE batch ({columns}, value VARCHAR{headers})")
        try:
            connection.execute(predicate.query).fetchall()
        except duckdb.Error as error:
            reason = str(error).splitlines()[0].partition(": ")[2]
            raise fault_error(
                f"cannot be evaluated: {reason}", "compare values of one type, or write CAST(x AS type)"
            ) from None
        finally:
            connection.execute("DROP TABLE batch")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
