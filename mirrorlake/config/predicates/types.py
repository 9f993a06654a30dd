"""Translate predicates from Spark's SQL to DuckDB's, with the type of each part.

sqlglot parses, types and writes. This module replaces each reference by a column of the batch, and casts text to the type of
the other operand. It refuses all that is not listed: nothing that reads files, asks the clock or is random.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.optimizer.annotate_types import annotate_types

from mirrorlake.config.faults import did_you_mean, fault_error
from mirrorlake.config.predicates.evaluation import engine
from mirrorlake.model.json_path import Index, Member, Path, path_text

# sqlglot's class of a tree node changed its name between versions.
Node = Any

TEXT, NUMBER, BOOLEAN, TIME, NULL = "text", "number", "boolean", "time", "null"
# Operands that must all be of the same kind.
_ALIKE = "alike"
COLUMNS = {"topic": "VARCHAR", "partition": "INT", "offset": "BIGINT", "timestamp": "TIMESTAMPTZ", "key": "VARCHAR"}
_ALL = (*COLUMNS, "value", "headers")
_SQL_TYPE = {TEXT: "VARCHAR", NUMBER: "DOUBLE", BOOLEAN: "BOOLEAN", TIME: "TIMESTAMPTZ"}
# A DOUBLE represents every whole number of 15 digits.
_EXACT_DIGITS = 15
_WIDE = "DECIMAL(38, 9)"

_CASTS = {
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), "VARCHAR"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "BIGINT"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "DOUBLE"),
    "DECIMAL": "DECIMAL",
    "BOOLEAN": "BOOLEAN",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"), "TIMESTAMPTZ"),
    "DATE": "DATE",
}
_KINDS = (
    (TEXT, exp.DataType.TEXT_TYPES),
    (NUMBER, exp.DataType.NUMERIC_TYPES),
    (TIME, exp.DataType.TEMPORAL_TYPES),
    (BOOLEAN, {exp.DataType.Type.BOOLEAN}),
)
# For suggestions in messages.
# fmt: off
FUNCTIONS = (
    "abs", "ceil", "coalesce", "concat", "concat_ws", "contains", "date", "day", "endswith", "floor", "greatest",
    "hour", "if", "ifnull", "least", "left", "length", "lower", "ltrim", "minute", "month", "nullif", "nvl",
    "regexp_like", "replace", "right", "rlike", "round", "rtrim", "startswith", "substring", "trim", "upper", "year",
)
# fmt: on
_ALL_OF = {kind: {"": kind} for kind in (TEXT, NUMBER, BOOLEAN, TIME, _ALIKE)}
# The allowed expressions besides references, casts and CASE: the kinds of operands by argument, "" for any other.
_ALLOWED: tuple[tuple[tuple[type, ...], Mapping[str, str]], ...] = (
    ((exp.Literal, exp.Boolean, exp.Null, exp.Paren), {}),
    ((exp.And, exp.Or, exp.Xor, exp.Not), _ALL_OF[BOOLEAN]),
    ((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ), _ALL_OF[_ALIKE]),
    ((exp.In, exp.Between, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least), _ALL_OF[_ALIKE]),
    ((exp.Like, exp.ILike, exp.StartsWith, exp.EndsWith, exp.Contains, exp.RegexpLike), _ALL_OF[TEXT]),
    ((exp.Lower, exp.Upper, exp.Trim, exp.Replace, exp.Concat, exp.ConcatWs, exp.DPipe, exp.Length), _ALL_OF[TEXT]),
    ((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg), _ALL_OF[NUMBER]),
    ((exp.Abs, exp.Floor, exp.Ceil, exp.Round), _ALL_OF[NUMBER]),
    ((exp.Year, exp.Month, exp.Day, exp.DayOfMonth, exp.Hour, exp.Minute), _ALL_OF[TIME]),
    ((exp.TsOrDsToDate, exp.Date), _ALL_OF[TIME]),
    ((exp.Substring, exp.Left, exp.Right), {"this": TEXT, "": NUMBER}),
    ((exp.If,), {"this": BOOLEAN, "": _ALIKE}),
)


class Translation:
    """Translate one predicate, and collect the columns, members and headers that it reads."""

    def __init__(self, fields: Mapping[Path, str]) -> None:
        self._fields = fields
        self.pointers: list[str] = []
        self.headers: list[str] = []
        self.columns: set[str] = set()
        self.tests_null = False

    def condition(self, tree: Node) -> Node:
        """Return a whole predicate in DuckDB's SQL."""
        return _as_kind(self._translated(tree), BOOLEAN)

    def _translated(self, node: Node) -> Node:
        if isinstance(node, exp.Column | exp.Dot | exp.Bracket):
            return self._reference(node)
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Is):
            return _typed(self._is(node))
        if isinstance(node, exp.Escape) and isinstance(node.this, exp.Like | exp.ILike):
            return _typed(self._like(node.this, node.expression.name))
        if isinstance(node, exp.Case):
            return _typed(self._case(node))
        kinds = next((kinds for types, kinds in _ALLOWED if isinstance(node, types)), None)
        if kinds is None or (isinstance(node, exp.In) and not node.expressions):
            raise _refusal(node.args.get("query") or node)
        if isinstance(node, exp.Like | exp.ILike):
            return _typed(self._like(node, "\\"))
        self._translate_operands(node, kinds)
        if isinstance(node, exp.IntDiv | exp.Mod):
            # As in Spark without ANSI mode, x / 0 is NULL; sqlglot does this for the plain division.
            node.set("expression", exp.func("NULLIF", node.expression, exp.Literal.number(0)))
        if isinstance(node, exp.TsOrDsToDate | exp.Date):
            return _try_cast(node.this, "DATE")
        return _typed(node, "DOUBLE" if kinds.get("") == NUMBER else "UNKNOWN")

    def _translate_operands(self, node: Node, kinds: Mapping[str, str]) -> None:
        places = list(_operands(node))
        wanted = [kinds.get(key, kinds.get("")) for key, _, _ in places]
        found = [self._translated(operand) for _, _, operand in places]
        alike = iter(_alike([one for one, kind in zip(found, wanted, strict=True) if kind == _ALIKE]))
        for (key, index, _), one, kind in zip(places, found, wanted, strict=True):
            fitting = next(alike) if kind == _ALIKE else one if kind is None else _as_kind(one, kind)
            node.set(key, fitting, index)

    # -- references -----------------------------------------------------------------------------------------------

    def _reference(self, node: Node) -> Node:
        root, path = _chain(node)
        name = root.lower()
        if name not in _ALL:
            meant = did_you_mean(name, _ALL)
            member = f"write value.{root} for a member of the value; the columns are {', '.join(_ALL)}"
            raise fault_error(f"unknown column '{root}'", meant if meant.startswith("did") else member)
        if name == "value":
            return self._member(path)
        if name == "headers":
            if len(path) != 1 or not isinstance(path[0], Member):
                raise fault_error(f"'{_written(node)}' is not a header", "write headers['name']")
            return _column(f"h{_place(self.headers, path[0].name)}", "VARCHAR")
        if path:
            raise fault_error(
                f"'{_written(node)}': {name} has no members", f"write {name} alone, or value{path_text(path)[1:]}"
            )
        self.columns.add(name)
        return _column(name, COLUMNS[name])

    def _member(self, path: Path) -> Node:
        if not path:
            raise fault_error("'value' is used as a whole", "name a member, like value.region, or ask value IS NULL")
        if self._fields and path not in self._fields:
            known = [path_text(one).removeprefix("$").removeprefix(".") for one in self._fields]
            name = path_text(path).removeprefix("$").removeprefix(".")
            raise fault_error(f"unknown field '{name}'", did_you_mean(name, known))
        type_name = self._fields.get(path, "VARCHAR")
        member = _column(f"f{_place(self.pointers, _pointer(path))}", "VARCHAR")
        if type_name == "BIGINT":
            # DuckDB would round '5.5', but a text with a dot is not a whole number.
            dotted = exp.func("CONTAINS", member.copy(), exp.Literal.string("."))
            member = exp.func("NULLIF", member, exp.If(this=dotted, true=member.copy()))
        return member if type_name == "VARCHAR" else _try_cast(member, type_name)

    # -- expressions with their own translation -------------------------------------------------------------------

    def _is(self, node: exp.Is) -> Node:
        """Return `x IS NULL`, `IS TRUE` or `IS FALSE`; `value IS NULL` tests for a tombstone."""
        if isinstance(node.expression, exp.Null):
            if isinstance(node.this, exp.Column) and _chain(node.this) in (("value", ()), ("VALUE", ())):
                self.tests_null = True
                return _column("tombstone", "BOOLEAN")
            return exp.Is(this=self._translated(node.this), expression=exp.Null())
        if isinstance(node.expression, exp.Boolean):
            return exp.Is(this=_as_kind(self._translated(node.this), BOOLEAN), expression=node.expression)
        raise _refusal(node)

    def _like(self, node: Node, escape: str) -> Node:
        self._translate_operands(node, {"": TEXT})
        pattern = node.expression
        if not isinstance(pattern, exp.Literal) or escape in pattern.name:
            return exp.Escape(this=node, expression=exp.Literal.string(escape))
        return node

    def _cast(self, node: exp.Cast) -> Node:
        word = node.to.this.value
        if word not in _CASTS:
            raise fault_error(
                f"CAST to {word} is not understood here", "cast to string, double, bigint, boolean or timestamp"
            )
        type_name = node.to.sql(dialect=DuckDB) if word == "DECIMAL" else _CASTS[word]
        source = self._translated(node.this)
        kind, found = _kind(_data_type(type_name)), _kind(source.type)
        if TIME in (kind, found) and {kind, found} & {NUMBER, BOOLEAN}:
            raise fault_error(
                f"'{_written(source)}' is a {found} and cannot be cast to {word}", "compare it with a timestamp"
            )
        if isinstance(source, exp.Literal) and found == TEXT:
            _refuse_unfit(source.name, kind, type_name)
        if type_name == "BIGINT" and found in (TEXT, NUMBER):
            # Spark truncates the fraction, DuckDB would round it.
            source = exp.func("TRUNC", _try_cast(source, _WIDE))
        return _try_cast(source, type_name)

    def _case(self, node: exp.Case) -> Node:
        branches, default = node.args["ifs"], node.args.get("default")
        for one in branches:
            if node.this:
                one.set("this", exp.EQ(this=node.this.copy(), expression=one.this))
            one.set("this", _as_kind(self._translated(one.this), BOOLEAN))
        operands = [one.args["true"] for one in branches] + ([default] if default else [])
        results = _alike([self._translated(one) for one in operands])
        ifs = [exp.If(this=one.this, true=result) for one, result in zip(branches, results, strict=False)]
        return exp.Case(ifs=ifs, default=results[-1] if default else None)


def _kind(type_: Node) -> str:
    return next((kind for kind, types in _KINDS if type_.this in types), NULL)


def _as_kind(node: Node, kind: str) -> Node:
    """Return an expression cast to another kind; NULL if it cannot be cast."""
    found, to = _kind(node.type), _SQL_TYPE[kind]
    if found in (kind, NULL):
        return node
    if kind != TEXT and found != TEXT:
        raise fault_error(f"'{_written(node)}' is a {found}, and a {kind} is expected", "write CAST(x AS type)")
    if kind != TEXT and isinstance(node, exp.Literal):
        _refuse_unfit(node.name, kind, to)
    return _try_cast(node, to)


def _alike(nodes: list[Node]) -> list[Node]:
    kinds = {_kind(node.type) for node in nodes} - {NULL, TEXT}
    if len(kinds) > 1:
        shown = " and ".join(f"'{_written(node)}' ({_kind(node.type)})" for node in nodes)
        raise fault_error(f"{shown} cannot be compared", "write CAST(x AS type)")
    kind = next(iter(kinds), TEXT)
    if kind == NUMBER and any(_is_wide(node) for node in nodes):
        return [_try_cast(node, _WIDE) if _kind(node.type) == TEXT else node for node in nodes]
    return [_as_kind(node, kind) for node in nodes]


def _operands(node: Node) -> Iterator[tuple[str, int | None, Node]]:
    for key, value in node.args.items():
        items: Iterable[tuple[int | None, Any]] = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, item in items:
            if hasattr(item, "sql") and not isinstance(item, exp.DataType):
                yield key, index, item


def _typed(node: Node, unknown: str = "UNKNOWN") -> Node:
    annotated = annotate_types(node, dialect=Spark, overwrite_types=False)
    if annotated.is_type("unknown"):
        annotated.type = unknown
    return annotated


def _column(name: str, type_name: str) -> Node:
    found: Node = exp.column(name, quoted=name in COLUMNS)
    found.type = _data_type(type_name)
    return found


def _try_cast(node: Node, type_name: str) -> Node:
    found: Node = exp.TryCast(this=node, to=_data_type(type_name))
    found.type = found.to
    return found


def _refusal(node: Any) -> Exception:
    if node.find(exp.Query) is not None or isinstance(node, exp.Subquery):
        return fault_error(
            "a subquery cannot be evaluated record by record", "compare with values written in the predicate"
        )
    if isinstance(node, exp.AggFunc | exp.Window):
        return fault_error(f"'{_written(node)}' is an aggregate", "a predicate sees one record at a time")
    if isinstance(node, exp.DDL | exp.Command | exp.DML | exp.Drop | exp.Alter | exp.Set | exp.Use | exp.Describe):
        return fault_error("this is a statement", "write a condition, like value.region = 'eu'")
    if isinstance(node, exp.Func):
        name = str(node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        return fault_error(f"the function '{name}' is not known here", did_you_mean(name, FUNCTIONS))
    if isinstance(node, exp.Placeholder | exp.Parameter):
        return fault_error(f"'{_written(node)}' is a parameter", "write the value itself")
    return fault_error(f"'{_written(node)}' is not understood here", "write a condition, like value.region = 'eu'")


def _chain(node: Any) -> tuple[str, Path]:
    if isinstance(node, exp.Column):
        parts = list(node.parts)
        if any(not isinstance(part, exp.Identifier) for part in parts):
            raise _refusal(node)
        return parts[0].name, tuple(Member(part.name) for part in parts[1:])
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        root, path = _chain(node.this)
        return root, (*path, Member(node.expression.name))
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal):
        root, path = _chain(node.this)
        key = node.expressions[0]
        if key.is_string:
            return root, (*path, Member(key.name))
        if key.name.isdigit():
            return root, (*path, Index(int(key.name)))
    raise _refusal(node)


def _pointer(path: Path) -> str:
    parts = (str(step.index) if isinstance(step, Index) else getattr(step, "name", "") for step in path)
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _place(known: list[str], name: str) -> int:
    if name not in known:
        known.append(name)
    return known.index(name)


def _is_wide(node: Any) -> bool:
    return (
        isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and len(node.name) > _EXACT_DIGITS
    )


def _data_type(name: str) -> exp.DataType:
    return exp.DataType.build(name, dialect=DuckDB)


def _refuse_unfit(text: str, kind: str, type_name: str) -> None:
    # fetchall: a result that is not fetched to its end blocks the connection for the next query.
    with engine() as connection:
        [(is_unfit,)] = connection.execute(f"SELECT TRY_CAST(? AS {type_name}) IS NULL", [text]).fetchall()
    if is_unfit:
        raise fault_error(f"'{text}' is not a {kind}", "write a value of the type that it is compared with")


def _written(node: Any) -> str:
    return str(node.sql(dialect=Spark, comments=False))[:60]
