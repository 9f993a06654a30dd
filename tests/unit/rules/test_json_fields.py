"""Members of JSON that are hidden: nothing of the original is left, and all other bytes stay as they are."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.json_path import parse_path
from mirrorlake.model.withheld import QUARANTINED
from mirrorlake.rules.json_fields import Hider, NotJson, keyed_hash, masked, nulled, removed
from tests.unit.rules.kit import FRAMED, SECRET, SOURCE, batch, sent, values, view


def hide(text: str | bytes, *paths: str, replace: Callable[..., Any] = masked) -> bytes:
    value = text.encode() if isinstance(text, str) else text
    return Hider([parse_path(path) for path in paths], replace)(value)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('{"a":[1,2],"b":3}', "$[*][0]", '{"a":["***",2],"b":3}'),
        ('{"a":{"b":[1,{"c":2}]},"d":[3,4]}', ("..b[*]", "d[0]"), '{"a":{"b":["***","***"]},"d":["***",4]}'),
        ('{"\\u0073sn":1}', "ssn", '{"ssn":"***"}'),
        ('{"a":{"\\u0073sn":1}}', "..ssn", '{"a":{"ssn":"***"}}'),
        ('{"s":1,"s":2}', "s", '{"s":"***"}'),
        ('{"a":{"s":1},"a":{"s":2}}', "a.s", '{"a":{"s":"***"}}'),
        ('[{"a":[{"s":1}],"b":[]}]', "[*].a[*].s", '[{"a":[{"s":"***"}],"b":[]}]'),
        ('{"a":{"b":1},"c":2}', ("a.b", "a", "..b"), '{"a":"***","c":2}'),
        ('\n {"s" : 1}\t', "s", '{"s":"***"}'),
        ('{"q\\"":1}', "$['q\"']", '{"q\\"":"***"}'),
    ],
)
def test_the_original_is_gone_from_wherever_a_path_leads(text: str, path: str | tuple[str, ...], expected: str) -> None:
    assert hide(text, *([path] if isinstance(path, str) else path)).decode() == expected


def test_a_hash_is_the_hmac_of_the_text_and_the_same_for_the_same() -> None:
    def digest(text: str, key: str = SECRET) -> str:
        return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()

    replace = keyed_hash(SECRET.encode())
    text = '{"a":"é","b":"\\u00e9","c":1.10,"d":{"x": 1},"e":null,"f":"1.10"}'
    found = json.loads(hide(text, "$[*]", replace=replace))
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
        "a[*]",
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
            hit = kind == "Every" or (kind in ("Member", "Anywhere") and step.name == name)
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
    twice = json.dumps(planted)[:-1] + f', "a": {{"ssn": "{secret}", "ssn": "{secret}"}}}}'
    for text in (json.dumps(planted), twice):
        for replace in (masked, nulled, removed, keyed_hash(b"k")):
            assert secret.encode() not in hide(text, path, replace=replace)


# -- frames of a schema registry --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [{"keep": "value.r = 'us'"}, {"mask": "ssn"}])
def test_framed_payloads_pass_as_they_are(rule: dict[str, Any]) -> None:
    passed = view(rule)(SOURCE, batch(FRAMED, b'{"r":"us","ssn":"***"}', b"\x00", FRAMED[:5]))
    assert (values(passed)[0], sent(passed)) == (FRAMED, [10, 11, 13]), "and a lone zero is not one"


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
    assert (held.kind, held.ranges.pairs) == (QUARANTINED, ((12, 1),)), "fails closed"
    first, second = found.records.column("key").to_pylist()
    assert b'"x"' not in first
    assert first.startswith(b'{"id":1')
    assert second == b'{"id":2}'


def test_names_of_headers_may_ignore_case() -> None:
    records = batch(b"v", headers=[[("Authorization", b"1"), ("X-Id", b"2"), ("authorization", b"3"), ("y", b"4")]])

    def left(**headers: Any) -> list[str]:
        found = view({"headers": headers})(SOURCE, records).records.column("headers").to_pylist()[0]
        return [header["key"] if isinstance(header, dict) else header[0] for header in found]

    assert left(drop="AUTHORIZATION", rename={"x-id": "id"}, ignore_case=True) == ["id", "y"]
    assert left(drop="(?i)AUTHORIZATION") == ["X-Id", "y"]
    assert left(drop="authorization", rename={"x-id": "id"}) == ["Authorization", "X-Id", "y"]
