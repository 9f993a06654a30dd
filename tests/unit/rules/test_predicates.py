"""Keep and drop on batches: what goes out, what stays back and why, and what is refused when the file is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import ConfigError
from mirrorlake.model.withheld import FILTERED, QUARANTINED
from tests.unit.rules.kit import SOURCE, batch, flow, predicate, reasons, sent, values, view


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
    assert (len(found.records), found.withheld[0].ranges.count) == (60, 30)


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
    assert predicate("value.r IN ('eu', '7') OR value.n > 3", *records) == expected
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
        ("", "the predicate is empty"),
        ("region = 'eu'", r"unknown column 'region' — write value\.region"),
        ("offest > 1", "unknown column 'offest' — did you mean 'offset'"),
        ("value = 'x'", "'value' is used as a whole"),
        ("value.a = (SELECT 1)", "a subquery cannot be evaluated"),
        ("count(*) > 1", "is an aggregate"),
        ("DROP TABLE x", "this is a statement"),
        ("value.a = 1; value.b = 2", "several statements"),
        ("read_text('/etc/passwd') = 'x'", "the function 'read_text' is not known here"),
        ("uper(key) = 'A'", "the function 'uper' is not known here — did you mean 'upper'"),
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
        ({"headers": {}}, ".headers", "neither drop nor rename"),
        ({"mask": "a", "name": "a b"}, ".name", "is not a rule name"),
        ({"mask": "a", "topics": "("}, ".topics", "unclosed group"),
        ({"mask": "a", "fields": {"a": "string"}}, ".fields", "without keep or drop"),
        ({"keep": "true", "fields": {"a": "strnig"}}, ".fields.a", "did you mean 'string'"),
        ({"keep": "true", "fields": {"a[*]": "string"}}, ".fields.a[*]", "names several members"),
        ({"hash": {"fields": "a"}}, ".hash", "'key' is missing"),
        ({"maks": "a"}, ".maks", "did you mean 'mask'"),
        ({"mask": ["$", "a"], "of": "key"}, ".mask", "the whole key already"),
        ({"drop": "key = 'a'", "of": "key"}, ".of", "this rule hides nothing"),
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
