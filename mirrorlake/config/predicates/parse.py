"""Compile the predicates of rules: Spark's SQL, checked when the file is read, translated to DuckDB's.

A predicate has the columns `topic, partition, offset, timestamp, key, headers` and the members of the JSON `value`. JSON types
are not reliable, so a member is text, or SQL NULL if it is missing or JSON null, and `TRY_CAST` casts it to the type of the
other operand. A predicate must not depend on the clock, on chance or on another record: a second run must withhold the same
records (law F).
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


FALSE, TRUE, NOT_JSON, FAILED, NOT_ASKED = range(5)
"""Results of a predicate for a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """A predicate that DuckDB evaluates on a batch.

    `sql` is the condition over the columns of `batch`, `f0, f1, ...` and `h0, h1, ...`: `pointers` has the members of `value` in the
    former, as JSON pointers (RFC 6901), `headers` the headers in the latter. `tests_null`: it tests the value for null.
    """

    text: str
    sql: str
    pointers: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    tests_null: bool = False

    @property
    def reads_json(self) -> bool:
        return bool(self.pointers)

    @property
    def query(self) -> str:
        """The query whose only column `p` is the result for each row of `batch`, in order.

        TRUE or FALSE (NULL is FALSE), NOT_JSON if the value does not parse, FAILED if the condition cannot be evaluated.
        """
        result = f"coalesce(TRY(({self.sql}) IS TRUE)::TINYINT, {FAILED})"
        if not self.pointers:
            return f"SELECT {result} AS p FROM batch"  # noqa: S608  built from a checked tree
        paths = ", ".join(_quoted(pointer) for pointer in self.pointers)
        members = ", ".join(f"f[{place}] AS f{place - 1}" for place in range(1, len(self.pointers) + 1))
        # Materialized: each value is parsed exactly once, whatever the optimizer does with the rest.
        return (
            f"WITH parsed AS MATERIALIZED (SELECT *, TRY(json_extract_string(value, [{paths}])) AS f FROM batch), "  # noqa: S608
            f"members AS (SELECT *, {members} FROM parsed) "
            f"SELECT if(value IS NOT NULL AND f IS NULL, {NOT_JSON}, {result}) AS p FROM members"
        )


def declared_fields(fields: Mapping[str, str]) -> dict[Path, str]:
    """Return the members that `fields` names, with DuckDB's types."""
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
    """Compile a condition in Spark's SQL, and check that DuckDB can evaluate it; `fields` None allows any member of `value`.

    Example:
        >>> compile_predicate("value.region = 'eu' AND value.amount > 10").pointers
        ('/region', '/amount')
    """
    # Late: sqlglot takes 0.1 s to import, and most flows have no rules.
    from sqlglot.dialects.duckdb import DuckDB

    from mirrorlake.config.predicates.types import Translation

    tree = _parse(text)
    translation = Translation(fields or {})
    try:
        sql = translation.condition(tree).sql(dialect=DuckDB, comments=False)
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
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import ParseError, SqlglotError

    try:
        trees = [tree for tree in sqlglot.parse(text, read=Spark) if tree is not None]
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
