"""From Spark's SQL to DuckDB's, node by node: what a predicate may say, and of which type each part is.

sqlglot parses and writes; here each reference is replaced by a column of the batch, and text is cast to the type of what
it is compared with. Whatever is not listed is refused: nothing that reads files, asks the clock or is random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mirrorlake.config.faults import SettingsFault, did_you_mean, finding_error
from mirrorlake.config.predicates.engine import engine
from mirrorlake.model.json_path import Index, Name, Path, path_text

if TYPE_CHECKING:
    from sqlglot import exp

# sqlglot's own name for a node of its tree changed between its versions.
Node = Any

TEXT, NUMBER, BOOLEAN, TIME, NULL = "text", "number", "boolean", "time", "null"
COLUMNS = {"topic": TEXT, "partition": NUMBER, "offset": NUMBER, "timestamp": TIME, "key": TEXT}
_ALL = (*COLUMNS, "value", "headers")
_SQL_TYPE = {TEXT: "VARCHAR", NUMBER: "DOUBLE", BOOLEAN: "BOOLEAN", TIME: "TIMESTAMPTZ"}
# A DOUBLE holds every whole number of 15 digits.
_EXACT_DIGITS = 15
_WIDE = "DECIMAL(38, 9)"

_CASTS = {
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), (TEXT, "VARCHAR")),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), (NUMBER, "BIGINT")),
    **dict.fromkeys(("FLOAT", "DOUBLE"), (NUMBER, "DOUBLE")),
    "DECIMAL": (NUMBER, "DECIMAL"),
    "BOOLEAN": (BOOLEAN, "BOOLEAN"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"), (TIME, "TIMESTAMPTZ")),
    "DATE": (TIME, "DATE"),
}
# For messages: what people may have meant.
# fmt: off
FUNCTIONS = (
    "abs", "ceil", "coalesce", "concat", "concat_ws", "contains", "date", "day", "endswith", "floor", "greatest",
    "hour", "if", "ifnull", "least", "left", "length", "lower", "ltrim", "minute", "month", "nullif", "nvl",
    "regexp_like", "replace", "right", "rlike", "round", "rtrim", "startswith", "substring", "trim", "upper", "year",
)
# fmt: on


def fault(problem: str, remedy: str) -> Exception:
    """Return the error that a predicate is refused with."""
    return finding_error(SettingsFault((), problem, remedy))


Typed = tuple[Node, str]


class Translation:
    """Translate one predicate, and collect what it reads."""

    def __init__(self, fields: Mapping[Path, tuple[str, str]]) -> None:
        self._fields = fields
        self.pointers: list[str] = []
        self.headers: list[str] = []
        self.columns: set[str] = set()
        self.tests_null = False

    def visit(self, node: Node) -> Typed:
        """Return a node as DuckDB understands it, and the kind of its value."""
        for kinds, translate in _translators():
            if isinstance(node, kinds):
                return translate(self, node)
        raise refusal(node)

    def as_kind(self, typed: Typed, kind: str) -> Node:
        """Return an expression as a value of another kind; NULL where it cannot be cast."""
        from sqlglot import exp

        node, found = typed
        if found in (kind, NULL):
            return node
        if kind == TEXT:
            return exp.TryCast(this=node, to=_data_type("VARCHAR"))
        if found != TEXT:
            raise fault(f"'{_written(node)}' is a {found}, and a {kind} is expected", "write CAST(x AS type)")
        to = _SQL_TYPE[kind]
        if isinstance(node, exp.Literal):
            _refuse_unfit(node.name, kind, to)
        return exp.TryCast(this=node, to=_data_type(to))

    def alike(self, operands: Sequence[Node]) -> tuple[list[Node], str]:
        """Return operands as values of one kind: text gives way to any other."""
        typed = [self.visit(operand) for operand in operands]
        kinds = {kind for _, kind in typed} - {NULL, TEXT}
        if len(kinds) > 1:
            shown = " and ".join(f"'{_written(node)}' ({kind})" for node, kind in typed)
            raise fault(f"{shown} cannot be compared", "write CAST(x AS type)")
        kind = next(iter(kinds), TEXT)
        if kind == NUMBER and any(_is_wide(node) for node, _ in typed):
            from sqlglot import exp

            wide = [exp.TryCast(this=node, to=_data_type(_WIDE)) if found == TEXT else node for node, found in typed]
            return list(wide), kind
        return [self.as_kind(one, kind) for one in typed], kind

    # -- what a record holds --------------------------------------------------------------------------------------

    def reference(self, node: Node) -> Typed:
        """Return a column, a member of the value or a header."""
        from sqlglot import exp

        root, path = _chain(node)
        name = root.lower()
        if name not in _ALL:
            meant = did_you_mean(name, _ALL)
            member = f"write value.{root} for a member of the value; the columns are {', '.join(_ALL)}"
            raise fault(f"unknown column '{root}'", meant if meant.startswith("did") else member)
        if name == "value":
            return self._member(path)
        if name == "headers":
            if len(path) != 1 or not isinstance(path[0], Name):
                raise fault(f"'{_written(node)}' is not a header", "write headers['name']")
            return exp.column(f"h{_place(self.headers, path[0].name)}"), TEXT
        if path:
            raise fault(
                f"'{_written(node)}': {name} has no members", f"write {name} alone, or value{path_text(path)[1:]}"
            )
        self.columns.add(name)
        return exp.column(name, quoted=True), COLUMNS[name]

    def _member(self, path: Path) -> Typed:
        from sqlglot import exp

        if not path:
            raise fault("'value' is used as a whole", "name a member, like value.region, or ask value IS NULL")
        if self._fields and path not in self._fields:
            known = [path_text(one).removeprefix("$").removeprefix(".") for one in self._fields]
            name = path_text(path).removeprefix("$").removeprefix(".")
            raise fault(f"unknown field '{name}'", did_you_mean(name, known))
        kind, type_name = self._fields.get(path, (TEXT, "VARCHAR"))
        member: Node = exp.column(f"f{_place(self.pointers, _pointer(path))}")
        if type_name == "BIGINT":
            # DuckDB rounds '5.5'; a text with a dot is not a whole number.
            dotted = exp.func("CONTAINS", member.copy(), exp.Literal.string("."))
            member = exp.func("NULLIF", member, exp.If(this=dotted, true=member.copy()))
        if type_name != "VARCHAR":
            member = exp.TryCast(this=member, to=_data_type(type_name))
        return member, kind

    def is_test(self, node: exp.Is) -> Typed:
        """Return `x IS NULL`, `IS TRUE` or `IS FALSE`; of the value itself, whether it is a tombstone."""
        from sqlglot import exp

        if isinstance(node.expression, exp.Null):
            if isinstance(node.this, exp.Column) and _chain(node.this) in (("value", ()), ("VALUE", ())):
                self.tests_null = True
                return exp.column("tombstone"), BOOLEAN
            return exp.Is(this=self.visit(node.this)[0], expression=exp.Null()), BOOLEAN
        if isinstance(node.expression, exp.Boolean):
            return exp.Is(this=self.as_kind(self.visit(node.this), BOOLEAN), expression=node.expression), BOOLEAN
        raise refusal(node)


Translate = Callable[[Translation, Any], Typed]


@cache
def _translators() -> tuple[tuple[tuple[type, ...], Translate], ...]:
    """List the node types that are supported, in the order in which they are tried; all others are refused."""
    from sqlglot import exp

    def fixed(kind: str) -> Translate:
        return lambda _, node: (node.copy(), kind)

    def operands(wanted: str, result: str) -> Translate:
        def translate(self: Translation, node: Node) -> Typed:
            for key, value in node.args.items():
                if hasattr(value, "sql") and not isinstance(value, exp.DataType):
                    node.set(key, self.as_kind(self.visit(value), wanted))
                elif isinstance(value, list):
                    node.set(key, [self.as_kind(self.visit(item), wanted) for item in value])
            return node, result

        return translate

    def numbers(self: Translation, node: Node) -> Typed:
        typed, result = operands(NUMBER, NUMBER)(self, node)
        if isinstance(typed, exp.IntDiv | exp.Mod):
            # As in Spark without ANSI mode, x / 0 is NULL; sqlglot sees to it for the plain division.
            typed.set("expression", exp.func("NULLIF", typed.expression, exp.Literal.number(0)))
        return typed, result

    def compare(self: Translation, node: Node) -> Typed:
        (left, right), _ = self.alike([node.this, node.expression])
        return type(node)(this=left, expression=right), BOOLEAN

    def between(self: Translation, node: exp.Between) -> Typed:
        (one, low, high), _ = self.alike([node.this, node.args["low"], node.args["high"]])
        return exp.Between(this=one, low=low, high=high), BOOLEAN

    def contained(self: Translation, node: exp.In) -> Typed:
        if not node.expressions or node.args.get("query"):
            raise refusal(node.args.get("query") or node)
        (one, *others), _ = self.alike([node.this, *node.expressions])
        return exp.In(this=one, expressions=others), BOOLEAN

    def like(self: Translation, node: Node) -> Typed:
        escape = node.expression.name if isinstance(node, exp.Escape) else "\\"
        inner = node.this if isinstance(node, exp.Escape) else node
        if not isinstance(inner, exp.Like | exp.ILike):
            raise refusal(node)
        translated, _ = operands(TEXT, BOOLEAN)(self, inner)
        pattern = translated.expression
        if not isinstance(pattern, exp.Literal) or escape in pattern.name:
            return exp.Escape(this=translated, expression=exp.Literal.string(escape)), BOOLEAN
        return translated, BOOLEAN

    def cast(self: Translation, node: exp.Cast) -> Typed:
        word = node.to.this.value
        kind, type_name = _CASTS.get(word, (NULL, ""))
        if kind == NULL:
            raise fault(
                f"CAST to {word} is not understood here", "cast to string, double, bigint, boolean or timestamp"
            )
        source, found = self.visit(node.this)
        if word == "DECIMAL":
            type_name = node.to.sql(dialect="duckdb")
        if TIME in (kind, found) and {kind, found} & {NUMBER, BOOLEAN}:
            raise fault(
                f"'{_written(source)}' is a {found} and cannot be cast to {word}", "compare it with a timestamp"
            )
        if isinstance(source, exp.Literal) and found == TEXT:
            _refuse_unfit(source.name, kind, type_name)
        if type_name == "BIGINT" and found in (TEXT, NUMBER):
            # Spark cuts the fraction off, DuckDB would round.
            source = exp.func("TRUNC", exp.TryCast(this=source, to=_data_type(_WIDE)))
        return exp.TryCast(this=source, to=_data_type(type_name)), kind

    def date(self: Translation, node: Node) -> Typed:
        return exp.TryCast(this=self.as_kind(self.visit(node.this), TIME), to=_data_type("DATE")), TIME

    def choice(self: Translation, node: Node) -> Typed:
        keys = [key for key in ("this", "true", "false", "expression") if hasattr(node.args.get(key), "sql")]
        if isinstance(node, exp.If):
            node.set("this", self.as_kind(self.visit(node.this), BOOLEAN))
            keys.remove("this")
        found, kind = self.alike([*(node.args[key] for key in keys), *node.expressions])
        for key, value in zip(keys, found, strict=False):
            node.set(key, value)
        if node.expressions:
            node.set("expressions", found[len(keys) :])
        return node, kind

    def case(self: Translation, node: exp.Case) -> Typed:
        branches, default = node.args["ifs"], node.args.get("default")
        results, kind = self.alike([*(one.args["true"] for one in branches), *([default] if default else [])])
        ifs = []
        for one, result in zip(branches, results, strict=False):
            if node.this:
                (left, right), _ = self.alike([node.this.copy(), one.this])
                condition: Node = exp.EQ(this=left, expression=right)
            else:
                condition = self.as_kind(self.visit(one.this), BOOLEAN)
            ifs.append(exp.If(this=condition, true=result))
        return exp.Case(ifs=ifs, default=results[len(branches)] if default else None), kind

    def paren(self: Translation, node: exp.Paren) -> Typed:
        inner, kind = self.visit(node.this)
        return exp.Paren(this=inner), kind

    def literal(_: Translation, node: exp.Literal) -> Typed:
        return node.copy(), TEXT if node.is_string else NUMBER

    def starts(self: Translation, node: Node) -> Typed:
        return operands(TEXT, BOOLEAN)(self, node)

    times = (exp.Year, exp.Month, exp.Day, exp.DayOfMonth, exp.Hour, exp.Minute)
    return (
        ((exp.Column, exp.Dot, exp.Bracket), lambda self, node: self.reference(node)),
        ((exp.Literal,), literal),
        ((exp.Boolean,), fixed(BOOLEAN)),
        ((exp.Null,), fixed(NULL)),
        ((exp.Paren,), paren),
        ((exp.And, exp.Or, exp.Xor, exp.Not), operands(BOOLEAN, BOOLEAN)),
        ((exp.Is,), lambda self, node: self.is_test(node)),
        ((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ), compare),
        ((exp.In,), contained),
        ((exp.Between,), between),
        ((exp.Like, exp.ILike, exp.Escape), like),
        ((exp.StartsWith, exp.EndsWith, exp.Contains, exp.RegexpLike), starts),
        ((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg), numbers),
        ((exp.Abs, exp.Floor, exp.Ceil, exp.Round), numbers),
        ((exp.Lower, exp.Upper, exp.Trim, exp.Replace, exp.Concat, exp.ConcatWs, exp.DPipe), operands(TEXT, TEXT)),
        ((exp.Length,), operands(TEXT, NUMBER)),
        ((exp.Substring, exp.Left, exp.Right), _part),
        ((exp.Cast,), cast),
        ((exp.TsOrDsToDate, exp.Date), date),
        (times, operands(TIME, NUMBER)),
        ((exp.Coalesce, exp.Nullif, exp.If, exp.Greatest, exp.Least), choice),
        ((exp.Case,), case),
    )


def _part(self: Translation, node: Any) -> Typed:
    node.set("this", self.as_kind(self.visit(node.this), TEXT))
    for key in ("start", "length", "expression"):
        if node.args.get(key) is not None:
            number = self.as_kind(self.visit(node.args[key]), NUMBER)
            node.set(key, number)
    return node, TEXT


def refusal(node: Any) -> Exception:
    """Return the error for a part that is not understood, with what it is."""
    from sqlglot import exp

    if node.find(exp.Query) is not None or isinstance(node, exp.Subquery):
        return fault(
            "a subquery cannot be evaluated record by record", "compare with values that stand in the predicate"
        )
    if isinstance(node, exp.AggFunc | exp.Window):
        return fault(f"'{_written(node)}' is an aggregate", "a predicate sees one record at a time")
    if isinstance(node, exp.DDL | exp.Command | exp.DML | exp.Drop | exp.Alter | exp.Set | exp.Use | exp.Describe):
        return fault("this is a statement", "write a condition, like value.region = 'eu'")
    if isinstance(node, exp.Func):
        name = str(node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        return fault(f"the function '{name}' is not known here", did_you_mean(name, FUNCTIONS))
    if isinstance(node, exp.Placeholder | exp.Parameter):
        return fault(f"'{_written(node)}' is a parameter", "write the value itself")
    return fault(f"'{_written(node)}' is not understood here", "write a condition, like value.region = 'eu'")


def _chain(node: Any) -> tuple[str, Path]:
    """Return the column that a reference begins with, and the steps below it."""
    from sqlglot import exp

    if isinstance(node, exp.Column):
        parts = list(node.parts)
        if any(not isinstance(part, exp.Identifier) for part in parts):
            raise refusal(node)
        return parts[0].name, tuple(Name(part.name) for part in parts[1:])
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        root, path = _chain(node.this)
        return root, (*path, Name(node.expression.name))
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal):
        root, path = _chain(node.this)
        key = node.expressions[0]
        if key.is_string:
            return root, (*path, Name(key.name))
        if key.name.isdigit():
            return root, (*path, Index(int(key.name)))
    raise refusal(node)


def _pointer(path: Path) -> str:
    parts = (str(step.index) if isinstance(step, Index) else getattr(step, "name", "") for step in path)
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _place(known: list[str], name: str) -> int:
    if name not in known:
        known.append(name)
    return known.index(name)


def _is_wide(node: Any) -> bool:
    from sqlglot import exp

    return (
        isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and len(node.name) > _EXACT_DIGITS
    )


def _data_type(name: str) -> exp.DataType:
    from sqlglot import exp

    return exp.DataType.build(name, dialect="duckdb")


def _refuse_unfit(text: str, kind: str, type_name: str) -> None:
    # All of it: a result that is not fetched to its end blocks the connection for what comes next.
    [(is_unfit,)] = engine().execute(f"SELECT TRY_CAST(? AS {type_name}) IS NULL", [text]).fetchall()
    if is_unfit:
        raise fault(f"'{text}' is not a {kind}", "write a value of the type that it is compared with")


def _written(node: Any) -> str:
    return str(node.sql(dialect="spark", comments=False))[:60]
