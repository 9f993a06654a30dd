"""Headers, functions and the view of a flow: order, versions, secrets, and what is told of rules."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mirrorlake as ml
from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.loops.hops import HOP_KEY
from mirrorlake.model.withheld import FILTERED, QUARANTINED
from mirrorlake.rules import Viewed, make_flow_view
from mirrorlake.topics.rules_plan import rule_notes
from tests.kit.commands import run_cli, write_conf
from tests.unit.rules.kit import SECRET, SOURCE, batch, flow, reasons, values, view


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


@pytest.mark.parametrize(
    ("rename", "expected"),
    [({"a": "b", "b": "c"}, ["b", "c", "d"]), ({"a": "b", "b": "a"}, ["b", "a", "d"])],
    ids=["one after another", "with each other"],
)
def test_headers_change_names_by_those_they_came_with(rename: dict[str, str], expected: list[str]) -> None:
    records = batch(b"v", headers=[[("a", b"1"), ("b", b"2"), ("d", b"3")]])
    found = view({"headers": {"rename": rename}})(SOURCE, records).records.column("headers").to_pylist()[0]
    assert [one["key"] for one in found] == expected


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
    assert values(make_flow_view(flow({"function": "upper"}))(SOURCE, records)) == [b"A", b"B", None, b"D"]  # type: ignore[misc]
    found = make_flow_view(flow({"function": "odd"}, {"function": "upper"}))(SOURCE, records)  # type: ignore[misc]
    assert (values(found), reasons(found)) == ([b"B", b"D"], [(FILTERED, "rule-1", "", ((10, 1), (12, 1)))])
    assert values(view({"function": f"{__name__}:upper_values"})(SOURCE, records))[0] == b"A"


def test_records_on_which_a_function_raises_are_quarantined_and_the_rest_goes_on() -> None:
    def strict(records: pa.RecordBatch) -> pa.RecordBatch:
        if b"bad" in records.column("value").to_pylist():
            raise ValueError("bad value: 4111-1111")
        return upper_values(records)

    ml.rule_function("strict", strict)
    records = batch(b"a", b"bad", b"c", b"bad")
    found = make_flow_view(flow({"function": "strict"}))(SOURCE, records)  # type: ignore[misc]
    assert values(found) == [b"A", b"C"]
    assert reasons(found) == [(QUARANTINED, "rule-1", "the function raised ValueError", ((11, 1), (13, 1)))]
    passed = make_flow_view(flow({"function": "strict", "on_error": "pass"}))(SOURCE, records)  # type: ignore[misc]
    assert (values(passed), passed.withheld) == ([b"A", b"bad", b"C", b"bad"], ())
    dropped = make_flow_view(flow({"function": "strict", "on_error": "drop"}))(SOURCE, records)  # type: ignore[misc]
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
    found = make_flow_view(flow({"function": "wild"}))(SOURCE, batch(b"a", b"b", b"c"))  # type: ignore[misc]
    [held] = found.withheld
    assert (len(found.records), held.kind, held.ranges.pairs) == (0, QUARANTINED, ((10, 3),))
    assert reason in held.reason


@pytest.mark.parametrize("name", ["nobody", "no_such_module:f", "os.path:no_such", "os:sep"])
def test_a_function_that_is_not_there_is_refused_before_anything_starts(name: str) -> None:
    with pytest.raises(UsageError, match="rule 'rule-1' of east->west needs the function"):
        make_flow_view(flow({"function": name}))


# -- the view ---------------------------------------------------------------------------------------------------------


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
    assert values(view(*rules)(SOURCE, records.slice(0, 0))) == []
    assert make_flow_view(flow()) is None, "without rules there is none"


def test_stages_follow_the_rules_and_count_in_the_version() -> None:
    class Stamp:
        version = "01234567"

        def __call__(self, _: SourcePartition, viewed: Viewed) -> Viewed:
            return Viewed(records=viewed.records.slice(0, 1), withheld=viewed.withheld)

    plain, staged = make_flow_view(flow({"keep": "true"})), make_flow_view(flow({"keep": "true"}), stages=(Stamp(),))
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
        make_flow_view(config)
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path))
    found = make_flow_view(config)
    assert found is not None
    digest = hmac.new(SECRET.encode(), b"1", hashlib.sha256).hexdigest()
    assert values(found(SOURCE, batch(b'{"ssn":"1"}'))) == [f'{{"ssn":"{digest}"}}'.encode()]
    for literal in (SECRET, f"${{env:NO_SUCH_KEY:-{SECRET}}}"):
        config = flow({"hash": {"fields": "ssn", "key": literal}})
        shown = make_flow_view(config)
        rule = config.rules[0]
        told = [repr(config), str(rule), repr(rule), json.dumps(rule.definition), repr(shown), repr(found), str(shown)]
        assert not [text for text in told if SECRET in text]
    (tmp_path / "pii" / "key").write_text("\n")
    with pytest.raises(ConfigError, match="the key is empty"):
        make_flow_view(flow(by_reference))


@pytest.mark.parametrize(
    "hash_setting", [SECRET, [SECRET], {"fields": "a", "key": [SECRET]}, {"fields": "a", "key": {SECRET: 1}}]
)
def test_no_message_shows_what_may_be_a_key(hash_setting: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        flow({"hash": hash_setting})
    assert SECRET not in str(refused.value)
    assert "hidden" in str(refused.value)


# -- what is told -----------------------------------------------------------------------------------------------------


def test_notes_tell_what_a_rule_does_not_do() -> None:
    config = flow(
        {"name": "a", "mask": "x", "topics": "ordres"},
        {"name": "c", "mask": "x", "on_error": "pass"},
        {"name": "d", "keep": "value.x = 1"},
    )
    notes = rule_notes(config, ["orders"])
    assert [(note.name, note.reason.split()[:3]) for note in notes] == [
        ("a", ["no", "topic", "of"]),
        ("a", ["values", "that", "a"]),
        ("c", ["values", "that", "a"]),
        ("c", ["values", "that", "are"]),
    ]
    assert str(notes[0]) == "east->west: rule a: no topic of the flow matches ordres, so it does nothing"


def test_rules_are_listed_with_versions_and_without_secrets(tmp_path: Path) -> None:
    conf = tmp_path / "mirror.yml"
    rules = [{"keep": "value.r = 'eu'"}, {"name": "pii", "hash": {"fields": "ssn", "key": SECRET}}]
    clusters = {alias: f"{alias}:9092" for alias in ("east", "west")}
    write_conf(tmp_path, clusters, [{"source": "east", "target": "west", "topics": "orders", "rules": rules}])
    command = ("rules", "--conf", str(conf), "--flow", "east->west")
    done = run_cli(*command, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)["rules"]
    assert [(rule["rule"], rule["does"]) for rule in found] == [
        ("rule-1", "keep value.r = 'eu'"),
        ("pii", 'hash {"fields": ["$.ssn"], "key": "********"}'),
    ]
    assert found[0]["version"] == flow(*rules).rules[0].version
    assert SECRET not in done.stdout
    assert run_cli(*command, "--try", "5").returncode == 2
