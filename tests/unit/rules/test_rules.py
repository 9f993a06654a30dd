"""Rules on batches: what goes out, what stays back and why, and which bytes stay as they are."""

from __future__ import annotations

import hashlib
import hmac
import json
import pickle
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

import mirrorlake as ml
from mirrorlake.cli import main
from mirrorlake.config.load import load
from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.json_path import parse_path
from mirrorlake.model.loops.hops import HOP_KEY
from mirrorlake.model.withheld import FILTERED, QUARANTINED
from mirrorlake.rules.flow_view import FlowView
from mirrorlake.rules.flow_view_build import flow_view
from mirrorlake.rules.json_fields import Hider, NotJson, keyed_hash, masked, nulled, removed
from mirrorlake.rules.repeats import names_twice
from mirrorlake.rules.view import Viewed
from mirrorlake.topics.rules_plan import rule_notes
from tests.builders import batch_of, mirror_config
from tests.flow.kit import write_conf

SOURCE = SourcePartition("orders", 1, 3)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SECRET = "correct horse battery staple"  # noqa: S105


def flow(*rules: dict[str, Any]) -> FlowConfig:
    return mirror_config({"rules": list(rules)}).flows[0]


def view(*rules: dict[str, Any]) -> FlowView:
    found = flow_view(flow(*rules))
    assert found is not None
    return travelled(found)


def travelled(found: FlowView) -> FlowView:
    """Return a view as a worker has it: nothing that the driver made of it is left."""
    again: FlowView = pickle.loads(pickle.dumps(found))  # noqa: S301
    return again


def batch(
    *values: bytes | None, keys: list[bytes | None] | None = None, headers: list[Any] | None = None, start: int = 10
) -> pa.RecordBatch:
    rows = range(len(values))
    days = [datetime(2026, 1, 1 + row % 28, tzinfo=timezone.utc) for row in rows]
    keys = keys or [b"k%d" % row for row in rows]
    return batch_of(range(start, start + len(values)), values=values, keys=keys, stamps=days, headers=headers)


def values(viewed: Viewed) -> list[bytes | None]:
    found: list[bytes | None] = viewed.records.column("value").to_pylist()
    return found


def sent(viewed: Viewed) -> list[int]:
    found: list[int] = viewed.records.column("offset").to_pylist()
    return found


def reasons(viewed: Viewed) -> list[tuple[str, str, str, tuple[tuple[int, int], ...]]]:
    return [(one.kind, one.rule, one.reason, one.ranges) for one in viewed.withheld]


def predicate(condition: str, *records: Any, **settings: Any) -> list[int]:
    """Return which rows `keep` lets through."""
    rows = [
        record if isinstance(record, bytes) or record is None else json.dumps(record).encode() for record in records
    ]
    return [offset - 10 for offset in sent(view({"keep": condition, **settings})(SOURCE, batch(*rows)))]


# -- keep and drop ----------------------------------------------------------------------------------------------------


def test_keep_lets_through_what_is_true_and_drop_withholds_what_is_true() -> None:
    records = batch(b'{"r":"eu"}', b'{"r":"us"}', b'{"r":null}', b"{}", b'{"r":"eu"}')
    kept = view({"name": "eu", "keep": "value.r = 'eu'"})(SOURCE, records)
    assert sent(kept) == [10, 14]
    assert reasons(kept) == [(FILTERED, "eu", "", ((11, 3),))], "null is not true"
    dropped = view({"drop": "value.r = 'eu'"})(SOURCE, records)
    assert sent(dropped) == [11, 12, 13], "null is not true"
    assert dropped.withheld[0].version == flow({"drop": "value.r = 'eu'"}).rules[0].version


def test_members_are_text_until_they_are_compared_with_something_else() -> None:
    amounts = [{"n": 9}, {"n": 10}, {"n": "10"}, {"n": "ten"}, {"n": None}, {}, {"n": 10.5}]
    assert predicate("value.n >= 10", *amounts) == [1, 2, 6]
    assert predicate("value.n IN (9, 10)", *amounts) == [0, 1, 2]
    assert predicate("value.n BETWEEN 9 AND 10", *amounts) == [0, 1, 2]
    assert predicate("value.n = '10'", *amounts) == [1, 2]
    assert predicate("value.n IS NULL", *amounts) == [4, 5]
    assert predicate("value.n + 1 > 11", *amounts) == [6]
    assert predicate("value.ok = true", {"ok": True}, {"ok": "true"}, {"ok": False}, {}) == [0, 1]
    assert predicate("NOT value.ok", {"ok": True}, {"ok": False}, {}) == [1]
    big = 12345678901234567891
    assert predicate(f"value.id = {big}", {"id": big}, {"id": big + 1}) == [0], "no digit is lost"
    assert predicate("value.at < timestamp'2026-01-01'", {"at": "2026-01-01T00:30:00+01:00"}, {"at": "soon"}) == [0]


def test_members_are_named_by_where_they_are() -> None:
    deep = {"a": {"b c": [{"d/e": "x"}, {"d/e": "y"}]}, "select": 1}
    assert predicate("value.a['b c'][1]['d/e'] = 'y'", deep, {}) == [0]
    assert predicate("value.`select` = 1", deep, {}) == [0]
    assert predicate("value[1].x = 1", [{"x": 1}, {"x": 1}], [{"x": 1}], {"x": 1}) == [0]
    assert predicate("value.s\u00fcd = 1", {"süd": 1}) == [0]


def test_columns_of_the_record_can_be_asked_for() -> None:
    records = batch(
        b"no JSON",
        b"\xff\xfe",
        None,
        keys=[b"a-1", None, b"\xff"],
        headers=[[("t", b"x"), ("t", b"y")], None, [("t", None), ("u", b"\xff")]],
    )

    def kept(condition: str) -> list[int]:
        return sent(view({"keep": condition})(SOURCE, records))

    assert kept("key LIKE 'a-%'") == [10]
    assert kept("key IS NULL") == [11, 12], "a key that is not UTF-8 is not text"
    assert kept("headers['t'] = 'y'") == [10], "the last one of a name counts"
    assert kept("headers['t'] = 'x' OR headers['u'] IS NOT NULL") == []
    assert kept("topic = 'orders' AND partition = 3 AND offset > 10") == [11, 12]
    assert kept("topic = 'orders' AND partition = 2") == []
    assert kept("timestamp >= '2026-01-02T00:00:00Z' AND year(timestamp) = 2026") == [11, 12]
    assert kept("value IS NULL") == [12], "no JSON is needed for that"
    assert kept("1 / (offset - 10) > 0") == [11, 12]


def test_like_has_sparks_escapes() -> None:
    assert predicate("value.a LIKE 'x\\\\_%'", {"a": "x_1"}, {"a": "xy1"}) == [0]
    assert predicate("value.a LIKE 'x!_%' ESCAPE '!'", {"a": "x_1"}, {"a": "xy1"}) == [0]
    assert predicate("value.a RLIKE '^x.y$'", {"a": "x1y"}, {"a": "x12y"}) == [0]


def test_declared_members_have_types_and_no_others_are_known() -> None:
    declared = {"region": "string", "amount": "double", "address.city": "string", "n": "int", "d": "decimal(10, 2)"}
    rows = [{"amount": "12", "n": 5}, {"amount": 9, "n": 5.5}, {"n": 6}]
    assert predicate("value.amount > 9.5", *rows, fields=declared) == [0]
    assert predicate("value.n < 6", *rows, fields=declared) == [0], "5.5 is not an int"
    assert predicate("value.d = 1.10", {"d": 1.1}, {"d": "1.10"}, {"d": 1.2}, fields=declared) == [0, 1]
    with pytest.raises(ConfigError, match="unknown field 'regoin' — did you mean 'region'"):
        flow({"keep": "value.regoin = 'eu'", "fields": declared})
    with pytest.raises(ConfigError, match=r"unknown field 'address\.town' — did you mean 'address\.city'"):
        flow({"keep": "value.address.town = 'eu'", "fields": declared})


def test_tombstones_pass_rules_that_read_the_value_unless_they_ask() -> None:
    records = batch(b'{"r":1}', None, b'{"r":2}')
    assert sent(view({"keep": "value.r = 2"})(SOURCE, records)) == [11, 12]
    assert sent(view({"drop": "value.r = 1 OR key = 'k1'"})(SOURCE, records)) == [11, 12]
    assert sent(view({"keep": "value.r = 2 AND value IS NOT NULL"})(SOURCE, records)) == [12]
    assert sent(view({"drop": "value IS NULL"})(SOURCE, records)) == [10, 12]
    assert sent(view({"keep": "key = 'k0'"})(SOURCE, records)) == [10], "it reads no value"


@pytest.mark.parametrize("broken", [b"", b"{", b"not json", b'{"r":1} {"r":2}', b'{"r":"\xff"}', b"\x00\x01"])
def test_what_is_not_json_goes_where_the_rule_says_and_the_rest_goes_on(broken: bytes) -> None:
    records = batch(b'{"r":1}', broken, b'{"r":2}', broken)
    for rule in ({"keep": "value.r > 0"}, {"mask": "x"}):
        found = view({"name": "j", **rule})(SOURCE, records)
        if broken == b'{"r":"\xff"}' and "mask" in rule:
            continue  # a reader that does not look into r
        assert sent(found) == [10, 12]
        assert reasons(found) == [(QUARANTINED, "j", "not JSON", ((11, 1), (13, 1)))]
        dropped = view({"name": "j", "on_error": "drop", **rule})(SOURCE, records)
        assert [one.kind for one in dropped.withheld] == [FILTERED]
        passed = view({"on_error": "pass", **rule})(SOURCE, records)
        assert (values(passed), passed.withheld) == (records.column("value").to_pylist(), ())


def test_a_record_on_which_the_predicate_fails_is_found_among_the_others() -> None:
    records = batch(*[b'{"n":1}', b'{"n":4}', b'{"n":1}'] * 30, start=2**62)
    found = view({"keep": "offset * CAST(value.n AS int) > 0"})(SOURCE, records)
    assert [(one.kind, one.reason) for one in found.withheld] == [(QUARANTINED, "the predicate cannot be evaluated")]
    assert (len(found.records), found.withheld[0].count) == (60, 30)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-50, 50)
    | st.floats(-50, 50).map(lambda x: round(x, 2))
    | st.sampled_from(["eu", "us", "7"])
)


@given(st.lists(st.none() | st.fixed_dictionaries({}, optional={"r": SCALARS, "n": SCALARS}), min_size=1, max_size=40))
def test_predicates_agree_with_a_plain_oracle(records: list[dict[str, Any] | None]) -> None:
    def number(value: Any) -> float | None:
        if value is None or isinstance(value, bool):
            return None
        try:
            return float(value)
        except ValueError:
            return None

    def text(value: Any) -> str | None:
        return None if value is None else value if isinstance(value, str) else json.dumps(value)

    def oracle(record: dict[str, Any] | None) -> bool:
        if record is None:
            return True
        n = number(record.get("n"))
        return text(record.get("r")) in ("eu", "7") or (n is not None and n > 3)

    expected = [row for row, record in enumerate(records) if oracle(record)]
    raw = [None if record is None else record for record in records]
    assert predicate("value.r IN ('eu', '7') OR value.n > 3", *raw) == expected
    rows = [None if record is None else json.dumps(record).encode() for record in records]
    dropped = sent(view({"drop": "value.r IN ('eu', '7') OR value.n > 3"})(SOURCE, batch(*rows)))
    assert [o - 10 for o in dropped] == [r for r, record in enumerate(records) if record is None or not oracle(record)]


def test_answers_stand_in_the_order_of_the_records() -> None:
    rows = [json.dumps({"n": n * 7919 % 30_011}).encode() for n in range(30_011)]
    found = view({"keep": "value.n % 3 = 0"})(SOURCE, batch(*rows))
    assert [value for value in values(found) if value and json.loads(value)["n"] % 3] == []
    assert len(found.records) == len(range(0, 30_011, 3))


# -- what is refused when the file is read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("value.a =", "does not parse near '='"),
        ("'open", "does not parse"),
        ("", "the predicate is empty"),
        ("region = 'eu'", r"unknown column 'region' — write value\.region"),
        ("offest > 1", "unknown column 'offest' — did you mean 'offset'"),
        ("value = 'x'", "'value' is used as a whole"),
        ("value.a = (SELECT 1)", "a subquery cannot be evaluated"),
        ("value.a IN (SELECT 1)", "a subquery cannot be evaluated"),
        ("SELECT 1", "a subquery cannot be evaluated"),
        ("count(*) > 1", "is an aggregate"),
        ("row_number() OVER (ORDER BY key) = 1", "is an aggregate"),
        ("DROP TABLE x", "this is a statement"),
        ("value.a = 1; value.b = 2", "several statements"),
        ("read_text('/etc/passwd') = 'x'", "the function 'read_text' is not known here"),
        ("uper(key) = 'A'", "the function 'uper' is not known here — did you mean 'upper'"),
        ("rand() > 0.5", "the function 'rand' is not known here"),
        ("now() > timestamp", "the function 'now' is not known here"),
        ("offset", "is a number, and a boolean is expected"),
        ("timestamp > 5", "cannot be compared"),
        ("timestamp > 'yesterday'", "'yesterday' is not a time"),
        ("partition = 'x'", "'x' is not a number"),
        ("value.a = :p", "is a parameter"),
        ("key.x = 1", "key has no members"),
        ("headers['a']['b'] = 'x'", "is not a header"),
        ("value.a RLIKE '('", "cannot be evaluated"),
        ("NOT " * 5000 + "true", "nested too deeply|does not parse"),
    ],
)
def test_a_predicate_that_cannot_work_is_refused_when_the_file_is_read(condition: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        flow({"keep": condition})
    assert [fault.path for fault in refused.value.faults] == ["flows[0].rules[0].keep"]


def test_a_refused_predicate_leaves_the_others_working() -> None:
    made = view({"keep": "value.n > 1"})
    for condition in ("partition = 'x'", "value.a RLIKE '('", "count(*) > 1"):
        with pytest.raises(ConfigError):
            flow({"keep": condition})
        assert sent(made(SOURCE, batch(b'{"n":1}', b'{"n":2}'))) == [11]


@pytest.mark.parametrize(
    ("rule", "path", "message"),
    [
        ({}, "", "the rule does nothing"),
        ({"keep": "true", "mask": "a"}, ".mask", "'mask' beside 'keep'"),
        ({"mask": "a."}, ".mask", "is not a path"),
        ({"mask": ["b", "a[-1]"]}, ".mask[1]", "is not a path"),
        ({"remove": "$"}, ".remove", "names the whole value"),
        ({"null": []}, ".null", "not a list of paths"),
        ({"function": "a b"}, ".function", "is not a function"),
        ({"function": "os.path"}, ".function", "is not a function"),
        ({"headers": {}}, ".headers", "neither drop nor rename"),
        ({"mask": "a", "name": "a b"}, ".name", "is not a rule name"),
        ({"mask": "a", "topics": "("}, ".topics", "unclosed group"),
        ({"mask": "a", "fields": {"a": "string"}}, ".fields", "without keep or drop"),
        ({"keep": "true", "fields": {"a": "strnig"}}, ".fields.a", "did you mean 'string'"),
        ({"keep": "true", "fields": {"a[*]": "string"}}, ".fields.a[*]", "names several members"),
        ({"keep": "key = 'a'", "framed": "read"}, ".framed", "this rule reads none"),
        ({"hash": {"fields": "a"}}, ".hash", "'key' is missing"),
        ({"maks": "a"}, ".maks", "did you mean 'mask'"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_with_its_place(rule: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        flow(rule)
    assert f"flows[0].rules[0]{path}" in [fault.path for fault in refused.value.faults]


def test_names_of_rules_are_unique_and_have_defaults() -> None:
    named = flow({"keep": "true"}, {"name": "x", "mask": "a"}, {"null": "b"})
    assert [rule.name for rule in named.rules] == ["rule-1", "x", "rule-3"]
    with pytest.raises(ConfigError, match="a second rule 'rule-2'"):
        flow({"name": "rule-2", "keep": "true"}, {"mask": "a"})


# -- hiding -----------------------------------------------------------------------------------------------------------


def hide(text: str | bytes, *paths: str, replace: Callable[..., Any] = masked) -> bytes:
    value = text.encode() if isinstance(text, str) else text
    return Hider([parse_path(path) for path in paths], replace)(value)


def test_everything_else_keeps_its_text() -> None:
    text = '{"ssn": "123", "n": 1.10, "big": 123456789012345678901234567890, "e": 1E5, "u": "\\u00e9", "o": { "x" : [1 ,2] }}'
    assert hide(text, "ssn") == (
        b'{"ssn":"***","n":1.10,"big":123456789012345678901234567890,"e":1E5,"u":"\\u00e9","o":{ "x" : [1 ,2] }}'
    )
    assert hide(text, "ssn", replace=removed).startswith(b'{"n":1.10,')
    assert hide(text, "ssn", replace=nulled).startswith(b'{"ssn":null,')


@pytest.mark.parametrize("member", ['"x"', "1", "-1.5e9", "true", "null", "[1,2]", '{"a":1}', '""'])
def test_a_member_of_any_type_is_masked(member: str) -> None:
    assert hide(f'{{"a":{member},"b":1}}', "a") == b'{"a":"***","b":1}'


def test_where_no_path_leads_nothing_changes() -> None:
    for text in ('{ "a" : {"b":1} , "x":2}', "[1, 2]", " 5 ", "null", '"ssn"', '{"a":"\\n"}', '{"a": []}'):
        value = text.encode()
        for path in ("ssn", "a.c", "a[0].x", "..ssn", "[5]", "a.b.c"):
            assert Hider([parse_path(path)], masked)(value) is value


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{"a":{"b":1,"c":2}}', "a.b", '{"a":{"b":"***","c":2}}'),
        ('{"i":[{"s":1},{"s":2},3]}', "i[*].s", '{"i":[{"s":"***"},{"s":"***"},3]}'),
        ('{"i":[{"s":1},{"s":2}]}', "i[1].s", '{"i":[{"s":1},{"s":"***"}]}'),
        ('{"a":{"x":1,"y":[2]}}', "a.*", '{"a":{"x":"***","y":"***"}}'),
        ('[{"s":1},[{"s":2}]]', "..s", '[{"s":"***"},[{"s":"***"}]]'),
        ('[{"s":1}]', "[0].s", '[{"s":"***"}]'),
        ("[1,[2]]", "[*]", '["***","***"]'),
        ('{"s":{"s":1}}', "..s", '{"s":"***"}'),
        ('{"a":[1,2],"b":3}', "$.*[0]", '{"a":["***",2],"b":3}'),
        ('{"a":{"s":{"t":1}},"s":2}', "a..t", '{"a":{"s":{"t":"***"}},"s":2}'),
        ('{"a b":1}', "$['a b']", '{"a b":"***"}'),
        ('{"\\u0073sn":1}', "ssn", '{"ssn":"***"}'),
        ('{"a":{"\\u0073sn":1}}', "..ssn", '{"a":{"ssn":"***"}}'),
        ('{"s":1,"s":2}', "s", '{"s":"***"}'),
        ('{"a":{"s":1},"a":{"s":2}}', "a.s", '{"a":{"s":"***"}}'),
        ('{"a":{"s":1},"a":2}', "a.s", '{"a":2}'),
        ('{"a":{"s":1}, "a":{}}', "..s", '{"a":{}}'),
        ('[{"a":[{"s":1}],"a":[]}]', "[*].a[*].s", '[{"a":[]}]'),
        ('\n {"s" : 1}\t', "s", '{"s":"***"}'),
        ('{"q\\"":1}', "$['q\"']", '{"q\\"":"***"}'),
        ('{"":1}', "$['']", '{"":"***"}'),
    ],
)
def test_the_original_is_gone_from_wherever_a_path_leads(text: str, path: str, expected: str) -> None:
    assert hide(text, path).decode() == expected


def test_several_paths_are_followed_at_once() -> None:
    text = '{"a":{"b":1,"c":2,"d":{"b":3}},"b":4}'
    assert hide(text, "a.b", "..d", "a.c") == b'{"a":{"b":"***","c":"***","d":"***"},"b":4}'
    assert hide("[1,2,3]", "[0]", "[2]", replace=removed) == b"[2]"


def test_a_hash_is_the_hmac_of_the_text_and_the_same_for_the_same() -> None:
    def digest(text: str, key: str = SECRET) -> str:
        return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()

    replace = keyed_hash(SECRET.encode())
    text = '{"a":"é","b":"\\u00e9","c":1.10,"d":{"x": 1},"e":null,"f":"1.10"}'
    found = json.loads(hide(text, "$.*", replace=replace))
    assert found["a"] == found["b"] == digest("é")
    assert found["c"] == found["f"] == digest("1.10")
    assert (found["d"], found["e"]) == (digest('{"x": 1}'), None)
    long = "k" * 100
    assert json.loads(hide('{"a":"x"}', "a", replace=keyed_hash(long.encode())))["a"] == digest("x", long)


@pytest.mark.parametrize("text", ["", "{", '{"a":1,}', '{"ssn":01}', '{"ssn":1}x', '{"a":"\\x"}', "\ufeff{}", "nope"])
def test_what_is_not_json_is_not_half_hidden(text: str) -> None:
    for path in ("ssn", "..ssn", "zzz"):
        with pytest.raises(NotJson) as refused:
            hide(text, path)
        assert not refused.value.args
        assert refused.value.__suppress_context__


def test_a_value_that_is_nested_without_end_is_no_json() -> None:
    with pytest.raises(NotJson):
        hide("[" * 100_000 + "]" * 100_000, "..a")
    with pytest.raises(NotJson):
        hide('{"a":' * 3000 + "1" + "}" * 3000, "..b.c")


NAMES = st.sampled_from(["a", "b", "ssn", "é", 'q"', "x y", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=25,
)
PATHS = st.sampled_from(
    [
        "a",
        "a.b",
        "..ssn",
        "[*].a",
        "a[0]",
        "a.*",
        "$['x y'].b",
        "..a.b",
        "a..b",
        "b[*].ssn",
        "$['q\"']",
        "$['']",
        "$['é']",
    ]
)


def expected_of(value: Any, steps: tuple[Any, ...], act: Callable[[Any], Any]) -> Any:
    """Follow a path in plain Python: the oracle."""
    if not steps:
        return act(value)
    step, rest = steps[0], steps[1:]
    kind = type(step).__name__
    deeper = kind == "Anywhere"
    if isinstance(value, dict):
        made = {}
        for name, member in value.items():
            if deeper:
                member = expected_of(member, steps, act)
            hit = kind == "Every" or (kind in ("Name", "Anywhere") and step.name == name)
            made[name] = expected_of(member, rest, act) if hit else member
        return made
    if isinstance(value, list):
        done = [expected_of(item, steps, act) for item in value] if deeper else value
        hits = {"Every": range(len(done)), "Index": [getattr(step, "index", -1)]}.get(kind, [])
        return [expected_of(item, rest, act) if place in hits else item for place, item in enumerate(done)]
    return value


@given(JSON, PATHS, st.booleans(), st.booleans())
def test_hiding_agrees_with_a_plain_oracle(value: Any, path: str, compact: bool, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped, separators=(",", ":") if compact else None)
    found = hide(text, path)
    expected = expected_of(value, parse_path(path), lambda _: "***")
    assert json.loads(found) == expected
    if expected == value and "***" not in text:
        assert found.decode() == text, "where nothing matched the bytes stay"


@given(st.text(min_size=8, alphabet="0123456789abcdef"), JSON, st.sampled_from(["..ssn", "..a.ssn"]))
def test_no_byte_of_the_original_remains(secret: str, value: Any, path: str) -> None:
    secret = f"<{secret}>"
    planted = {"a": {"ssn": secret, "b": [{"a": {"ssn": [secret]}}, value]}, "x y": value}
    twice = json.dumps(planted)[:-1] + f', "a": {{"ssn": "{secret}", "ssn": "{secret}"}}, "a": 1}}'
    for text in (json.dumps(planted), twice):
        for replace in (masked, nulled, removed, keyed_hash(b"k")):
            assert secret.encode() not in hide(text, path, replace=replace)


@given(st.dictionaries(NAMES, st.integers() | st.decimals(allow_nan=False, allow_infinity=False, places=3), max_size=6))
def test_other_members_keep_their_digits(members: dict[str, Any]) -> None:
    text = "{" + ",".join(f"{json.dumps(name)}:{number}" for name, number in members.items()) + "}"
    others = [(json.dumps(name, ensure_ascii=False), number) for name, number in members.items() if name != "ssn"]
    kept = "{" + ",".join(f"{name}:{number}" for name, number in others) + "}"
    found = hide(text, "ssn", replace=removed)
    assert found.decode() == (kept if "ssn" in members else text)


# -- frames of a schema registry --------------------------------------------------------------------------------------

FRAMED = bytes([0, 0, 0, 0, 42]) + b'{"r":"eu","ssn":"1"}'


@pytest.mark.parametrize("rule", [{"keep": "value.r = 'us'"}, {"mask": "ssn"}])
def test_framed_payloads_are_recognised(rule: dict[str, Any]) -> None:
    records = batch(FRAMED, b'{"r":"us","ssn":"***"}', b"\x00", FRAMED[:5])
    passed = view(rule)(SOURCE, records)
    assert values(passed)[0] is not None
    assert (values(passed)[0], sent(passed)) == (FRAMED, [10, 11, 13]), "and a lone zero is not one"
    for how, kind in (("quarantine", QUARANTINED), ("drop", FILTERED)):
        found = view({"name": "f", "framed": how, **rule})(SOURCE, records)
        assert (kind, "f", "framed by a schema registry, schema id 42", ((10, 1), (13, 1))) in reasons(found)
        assert sent(found) == [11]


def test_the_json_behind_a_frame_is_read_on_request() -> None:
    records = batch(FRAMED, b'{"r":"us","ssn":"2"}', FRAMED[:5] + b"\x02avro", None)
    kept = view({"keep": "value.r = 'eu'", "framed": "read"})(SOURCE, records)
    assert sent(kept) == [10, 13]
    hidden = view({"mask": "ssn", "framed": "read"})(SOURCE, records)
    assert values(hidden) == [FRAMED[:5] + b'{"r":"eu","ssn":"***"}', b'{"r":"us","ssn":"***"}', None]
    reason = "not JSON behind the frame of a schema registry, schema id 42"
    assert [one[2] for one in reasons(hidden)] == [reason]
    assert (QUARANTINED, "rule-1", reason, ((12, 1),)) in reasons(kept)


@pytest.mark.parametrize(
    ("value", "twice"),
    [
        (b'{"secret":false,"secret":true}', True),
        (b'{"secret":true,"secret":false}', True),
        (b'{"secret": true, "a": 1, "\\u0073ecret": false}', True),
        (b'{"secret":false,"secret":false}', True),
        (b'{"at":{"x":1},"at":{"x":2},"secret":false}', True),
        (b'{"at":{"x":1,"x":1},"secret":false}', True),
        (b'{"secret":false,"a":{"secret":1,"b":"secret"},"c":[{"x":1},{"x":2}]}', False),
        (b'{"a":"\\"secret\\": \\"secret\\":","secret":false}', False),
        (b'{"q\\"x":1,"q\\"x":2,"secret":false}', False),
        (b"{}", False),
    ],
)
def test_a_tested_member_that_stands_twice_is_quarantined_whichever_a_reader_would_take(
    value: bytes, twice: bool
) -> None:
    for rule in ({"drop": "value.secret = true OR value.at.x > 3"}, {"keep": "value.secret = false OR value.at.x > 0"}):
        found = view({**rule, "fields": {"secret": "boolean", "at.x": "int"}})(
            SOURCE, batch(value, b'{"secret":false}')
        )
        held = [(one.kind, one.reason, one.ranges) for one in found.withheld if one.kind == QUARANTINED]
        assert held == ([(QUARANTINED, "an object names a tested member twice", ((10, 1),))] if twice else [])


names = st.text('ab"\\/~é', min_size=1, max_size=3)


@given(st.lists(st.tuples(names, st.integers(0, 1)), max_size=4), names, st.booleans())
def test_repeats_are_found_however_names_are_written(pairs: list[tuple[str, int]], name: str, escaped: bool) -> None:
    text = "{" + ", ".join(f"{json.dumps(key, ensure_ascii=escaped)}: {value}" for key, value in pairs) + "}"
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    found = names_twice(pa.array([text, None, "{"]), [pointer])
    expected = [key for key, _ in pairs].count(name) > 1
    assert (found is not None and found.tolist() == [True, False, False]) == expected


@pytest.mark.parametrize("action", ["mask", "hash", "null", "remove"])
def test_keys_are_hidden_whole_or_by_member_also_of_tombstones(action: str) -> None:
    def rule(*paths: str) -> dict[str, Any]:
        told = {"fields": list(paths), "key": SECRET} if action == "hash" else list(paths)
        return {action: told, "of": "key"}

    keys = [b"anna@example.com", b"", None, b"\xff"]
    records = batch(b"v", None, b"{", b"v", keys=keys)
    found = view(rule("$"))(SOURCE, records)
    wanted = {
        "mask": [b"***", b"***", None, b"***"],
        "hash": [k if k is None else hmac.digest(SECRET.encode(), k, "sha256").hex().encode() for k in keys],
    }.get(action, [None] * 4)
    assert found.records.column("key").to_pylist() == wanted
    assert values(found) == [b"v", None, b"{", b"v"], "the value stays"
    assert not found.withheld

    members = batch(b"v", None, b"w", keys=[b'{"id":1,"ssn":"x"}', b'{"id":2}', b"no json"])
    found = view(rule("ssn"))(SOURCE, members)
    [held] = found.withheld
    assert (held.kind, held.ranges) == (QUARANTINED, ((12, 1),)), "fails closed"
    first, second = found.records.column("key").to_pylist()
    assert b'"x"' not in first
    assert first.startswith(b'{"id":1')
    assert second == b'{"id":2}'


def test_what_a_rule_of_keys_may_not_say_is_a_fault() -> None:
    for rule, told in (
        ({"mask": ["$"]}, "names the whole value"),
        ({"mask": ["$", "a"], "of": "key"}, "the whole key already"),
        ({"drop": "key = 'a'", "of": "key"}, "this rule hides nothing"),
        ({"mask": ["$"], "of": "key", "framed": "drop"}, "this rule reads none"),
    ):
        with pytest.raises(ConfigError, match=told):
            flow(rule)


def test_names_of_headers_may_ignore_case() -> None:
    records = batch(b"v", headers=[[("Authorization", b"1"), ("X-Id", b"2"), ("authorization", b"3"), ("y", b"4")]])

    def left(**headers: Any) -> list[str]:
        found = view({"headers": headers})(SOURCE, records).records.column("headers").to_pylist()[0]
        return [header["key"] if isinstance(header, dict) else header[0] for header in found]

    assert left(drop="AUTHORIZATION", rename={"x-id": "id"}, ignore_case=True) == ["id", "y"]
    assert left(drop="(?i)AUTHORIZATION") == ["X-Id", "y"]
    assert left(drop="authorization", rename={"x-id": "id"}) == ["Authorization", "X-Id", "y"]


# -- headers ----------------------------------------------------------------------------------------------------------


def test_headers_are_dropped_and_renamed_in_place() -> None:
    headers = [
        [("x-user", b"1"), ("a", None), ("a", b""), ("x-id", b"2")],
        None,
        [],
        [("x-user", b"3")],
        [("b", b"4"), ("c", b"5")],
    ]
    records = batch(*[b"v"] * 5, headers=headers)
    rule = {"headers": {"drop": ["x-.*"], "rename": {"a": "A", "x-id": "never"}}}
    for source in (records, batch(*[b"v"] * 7, headers=[None, [("x-q", b"")], *headers]).slice(2)):
        found = view(rule)(SOURCE, source)
        expected = [[("A", None), ("A", b"")], None, [], [], [("b", b"4"), ("c", b"5")]]
        rows = found.records.column("headers").to_pylist()
        assert [row and [(one["key"], one["value"]) for one in row] for row in rows] == [e or e for e in expected]
        assert (found.records.schema, found.withheld) == (source.schema, ())
    assert view({"headers": {"drop": "zzz"}})(SOURCE, records).records is records


def test_no_rule_takes_away_where_a_record_has_been() -> None:
    records = batch(b"v", headers=[[(HOP_KEY, b"east"), ("x", b"1")]])
    for rule in ({"drop": ".*"}, {"rename": {HOP_KEY: "x-hop"}}):
        found = view({"headers": rule})(SOURCE, records).records.column("headers").to_pylist()[0]
        assert (HOP_KEY, b"east") in [(one["key"], one["value"]) for one in found], "it would go round for ever"


# -- functions --------------------------------------------------------------------------------------------------------


def upper_values(records: pa.RecordBatch) -> pa.RecordBatch:
    changed = [value and value.upper() for value in records.column("value").to_pylist()]
    return records.set_column(3, "value", pa.array(changed, pa.binary()))


def test_a_function_changes_and_leaves_out_records() -> None:
    ml.rule_function("upper", upper_values)
    ml.rule_function(
        "odd", lambda records: records.filter(pa.array([o % 2 == 1 for o in records.column(0).to_pylist()]))
    )
    records = batch(b"a", b"b", None, b"d")
    assert values(flow_view(flow({"function": "upper"}))(SOURCE, records)) == [b"A", b"B", None, b"D"]  # type: ignore[misc]
    found = flow_view(flow({"function": "odd"}, {"function": "upper"}))(SOURCE, records)  # type: ignore[misc]
    assert (values(found), reasons(found)) == ([b"B", b"D"], [(FILTERED, "rule-1", "", ((10, 1), (12, 1)))])
    assert values(view({"function": f"{__name__}:upper_values"})(SOURCE, records))[0] == b"A"


def test_records_on_which_a_function_raises_are_quarantined_and_the_rest_goes_on() -> None:
    def strict(records: pa.RecordBatch) -> pa.RecordBatch:
        if b"bad" in records.column("value").to_pylist():
            raise ValueError("bad value: 4111-1111")
        return upper_values(records)

    ml.rule_function("strict", strict)
    records = batch(b"a", b"bad", b"c", b"bad")
    found = flow_view(flow({"function": "strict"}))(SOURCE, records)  # type: ignore[misc]
    assert values(found) == [b"A", b"C"]
    assert reasons(found) == [(QUARANTINED, "rule-1", "the function raised ValueError", ((11, 1), (13, 1)))]
    passed = flow_view(flow({"function": "strict", "on_error": "pass"}))(SOURCE, records)  # type: ignore[misc]
    assert (values(passed), passed.withheld) == ([b"A", b"bad", b"C", b"bad"], ())
    dropped = flow_view(flow({"function": "strict", "on_error": "drop"}))(SOURCE, records)  # type: ignore[misc]
    assert [one.kind for one in dropped.withheld] == [FILTERED]


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (lambda _: None, "returned NoneType, not a RecordBatch"),
        (lambda r: r.select(["offset", "key", "value", "headers"]), "returned no column 'timestamp'"),
        (lambda r: r.take(pa.array([1, 0])), "other offsets than it got, or in another order"),
        (lambda r: r.take(pa.array([0, 0])), "other offsets than it got, or in another order"),
        (lambda r: r.set_column(0, "offset", pa.array([1, 2, 3])), "other offsets than it got"),
        (lambda r: r.set_column(3, "value", pa.array([[1], [2], [3]])), "returned 'value' as list<"),
        (lambda r: r.set_column(1, "timestamp", pa.nulls(3, pa.timestamp("us", "UTC"))), "without offset or timestamp"),
    ],
)
def test_a_function_that_returns_something_else_has_its_batch_quarantined(returned: Any, reason: str) -> None:
    ml.rule_function("wild", returned)
    found = flow_view(flow({"function": "wild"}))(SOURCE, batch(b"a", b"b", b"c"))  # type: ignore[misc]
    [held] = found.withheld
    assert (len(found.records), held.kind, held.ranges) == (0, QUARANTINED, ((10, 3),))
    assert reason in held.reason


@pytest.mark.parametrize("name", ["nobody", "no_such_module:f", "os.path:no_such", "os:sep"])
def test_a_function_that_is_not_there_is_refused_before_anything_starts(name: str) -> None:
    with pytest.raises(UsageError, match="rule 'rule-1' of east->west needs the function"):
        flow_view(flow({"function": name}))


# -- the view ---------------------------------------------------------------------------------------------------------


def test_a_flow_without_rules_has_no_view() -> None:
    assert flow_view(flow()) is None


def test_rules_apply_in_order_and_to_their_topics() -> None:
    rules = (
        {"name": "eu", "keep": "value.r = 'eu'"},
        {"name": "pii", "topics": "orders", "mask": "ssn"},
        {"name": "other", "topics": "payments", "remove": "ssn"},
        {"name": "late", "drop": "value.ssn <> '***'"},
    )
    records = batch(b'{"r":"eu","ssn":"1"}', b'{"r":"us","ssn":"2"}', b"{")
    found = view(*rules)(SOURCE, records)
    assert values(found) == [b'{"r":"eu","ssn":"***"}']
    assert [(one.kind, one.rule) for one in found.withheld] == [(FILTERED, "eu"), (QUARANTINED, "eu")]
    elsewhere = view(*rules)(SourcePartition("payments", 1, 0), records)
    assert values(elsewhere) == [b'{"r":"eu"}']


def test_a_batch_where_nothing_applies_is_returned_as_it_is() -> None:
    records = batch(b'{"a": 1}', None, headers=[None, [("h", b"")]])
    for rule in ({"keep": "true"}, {"mask": "zzz"}, {"headers": {"drop": "z"}}, {"mask": "a", "topics": "other"}):
        assert view(rule)(SOURCE, records).records is records
    empty = records.slice(0, 0)
    assert view({"keep": "value.a = 1"}, {"mask": "a"})(SOURCE, empty).records is empty


def test_stages_follow_the_rules_and_count_in_the_version() -> None:
    class Stamp:
        version = "01234567"

        def __call__(self, _: SourcePartition, viewed: Viewed) -> Viewed:
            return Viewed(records=viewed.records.slice(0, 1), withheld=viewed.withheld)

    plain, staged = flow_view(flow({"keep": "true"})), flow_view(flow({"keep": "true"}), stages=(Stamp(),))
    assert plain is not None
    assert staged is not None
    assert plain.version != staged.version
    assert len(staged(SOURCE, batch(b"1", b"2")).records) == 1


def test_a_version_tells_definitions_apart_and_nothing_else() -> None:
    def version(**rule: Any) -> str:
        return flow({"name": "x", **rule}).rules[0].version

    assert version(mask="a") == version(mask=["$.a"], on_error="quarantine")
    assert len({version(mask="a"), version(mask="b"), version(null="a"), version(mask="a", on_error="drop")}) == 4
    one, two = ({"fields": "a", "key": key} for key in ("secret one", "secret two"))
    assert version(hash=one) == version(hash=two), "secrets do not count"
    assert version(mask="a") == "".join(c for c in version(mask="a") if c in "0123456789abcdef")
    assert len(version(mask="a")) == 8


def test_versions_outlive_releases() -> None:
    # `audit` and `withheld` hold them for years: neither a new setting nor a new default may change them.
    rules = flow({"name": "x", "mask": "a"}, {"name": "y", "hash": {"fields": "a", "key": "${secret:a/b}"}}).rules
    assert rules[0].definition == {"name": "x", "mask": ["$.a"]}
    assert [rule.version for rule in rules] == ["3332070a", "b708015d"]


def test_a_pickled_view_is_small_and_does_the_same() -> None:
    rules = ({"keep": "value.a > 1"}, {"hash": {"fields": "..ssn", "key": SECRET}})
    found = flow_view(flow(*rules))
    assert found is not None
    first = found(SOURCE, batch(b'{"a":2,"ssn":"x"}'))
    assert values(travelled(found)(SOURCE, batch(b'{"a":2,"ssn":"x"}'))) == values(first)
    assert len(pickle.dumps(found)) < 2_500, "it travels with every batch"


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_a_key_is_resolved_late_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pii").mkdir()
    (tmp_path / "pii" / "key").write_text(SECRET + "\n")
    by_reference = {"hash": {"fields": "ssn", "key": "${secret:pii/key}"}}
    monkeypatch.delenv("MIRRORLAKE_SECRETS_DIR", raising=False)
    config = flow(by_reference)
    with pytest.raises(
        ConfigError, match=r"flows\[0\]\.rules\[0\]\.hash\.key: \$\{secret:pii/key\} cannot be resolved"
    ):
        flow_view(config)
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path))
    found = flow_view(config)
    assert found is not None
    digest = hmac.new(SECRET.encode(), b"1", hashlib.sha256).hexdigest()
    assert values(found(SOURCE, batch(b'{"ssn":"1"}'))) == [f'{{"ssn":"{digest}"}}'.encode()]
    for literal in (SECRET, f"${{env:NO_SUCH_KEY:-{SECRET}}}"):
        config = flow({"hash": {"fields": "ssn", "key": literal}})
        shown = flow_view(config)
        rule = config.rules[0]
        told = [repr(config), str(rule), repr(rule), json.dumps(rule.definition), repr(shown), repr(found), str(shown)]
        assert not [text for text in told if SECRET in text]
    (tmp_path / "pii" / "key").write_text("\n")
    with pytest.raises(ConfigError, match="the key is empty"):
        flow_view(flow(by_reference))


@pytest.mark.parametrize(
    "hash_setting", [SECRET, [SECRET], {"fields": "a", "key": [SECRET]}, {"fields": "a", "key": {SECRET: 1}}]
)
def test_no_message_shows_what_may_be_a_key(hash_setting: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        flow({"hash": hash_setting})
    assert SECRET not in str(refused.value)
    assert "hidden" in str(refused.value)


def test_the_file_to_begin_with_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mirrorlake").mkdir()
    (tmp_path / "mirrorlake" / "pii-key").write_text(SECRET)
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path))
    conf = Path(__file__).parents[3] / "conf" / "isolation.yml"
    made = flow_view(load(conf).flows[0])
    assert made is not None
    order = b'{"region":"eu","payment":{"card":"1"},"internal":{"a":1},"customer":{"email":"a@b","id":7}}'
    found = made(SOURCE, batch(order, b'{"region":"us"}', FRAMED))
    hashed = {name: keyed_hash(SECRET.encode())(Raw(text)) for name, text in (("e", b'"a@b"'), ("i", b"7"))}
    assert values(found) == [
        b'{"region":"eu","payment":{"card":"***"},"customer":{"email":%b,"id":%b}}'
        % (bytes(hashed["e"] or b""), bytes(hashed["i"] or b""))
    ]
    assert [one.rule for one in found.withheld] == ["europe", "cards"]


# -- what is told -----------------------------------------------------------------------------------------------------


def test_notes_tell_what_a_rule_does_not_do() -> None:
    config = flow(
        {"name": "a", "mask": "x", "topics": "ordres"},
        {"name": "b", "mask": "x", "framed": "quarantine"},
        {"name": "c", "mask": "x", "framed": "drop", "on_error": "pass"},
        {"name": "d", "keep": "value.x = 1"},
    )
    notes = rule_notes(config, ["orders"])
    assert [(note.name, note.reason.split()[:3]) for note in notes] == [
        ("a", ["no", "topic", "of"]),
        ("a", ["values", "that", "a"]),
        ("c", ["values", "that", "are"]),
    ]
    assert str(notes[0]) == "east->west: rule a: no topic of the flow matches ordres, so it does nothing"


def test_rules_are_listed_with_versions_and_without_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "mirror.yml"
    rules = [{"keep": "value.r = 'eu'"}, {"name": "pii", "hash": {"fields": "ssn", "key": SECRET}}]
    clusters = {alias: f"{alias}:9092" for alias in ("east", "west")}
    write_conf(tmp_path, clusters, [{"source": "east", "target": "west", "topics": "orders", "rules": rules}])
    with pytest.raises(SystemExit) as ended:
        main(["rules", "--conf", str(conf), "--flow", "east->west", "--json"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    found = json.loads(printed)["rules"]
    assert [(rule["rule"], rule["does"]) for rule in found] == [
        ("rule-1", "keep value.r = 'eu'"),
        ("pii", 'hash {"fields": ["$.ssn"], "key": "********"}'),
    ]
    assert found[0]["version"] == flow(*rules).rules[0].version
    assert SECRET not in printed
    with pytest.raises(SystemExit) as ended:
        main(["rules", "--conf", str(conf), "--flow", "east->west", "--try", "5"])
    assert ended.value.code == 2
