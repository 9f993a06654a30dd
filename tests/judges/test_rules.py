"""Rules on real brokers: what a target gets of personal data, and how everything that it does not get is explained."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mirrorlake as ml
from mirrorlake import Exact, Filtered, Quarantined
from tests.kit.deaths import dying
from tests.kit.records import Record, commit, rows_of, send
from tests.servers.lakes import Pair

KEY = "a key that nobody may read"
CARD, SSN, EMAIL, INTERNAL = b"4111-1111-7777-0001", b"ssn-90210-77", b"ada.l@private.example", b"internal-host-17"
EXECUTIONS = ("live", "streaming")


def order(region: str, **members: Any) -> bytes:
    return json.dumps({"region": region, "amount": 12.50, **members}).encode()


PERSONAL = order(
    "eu",
    payment={"card": CARD.decode(), "iban": None},
    customer={"email": EMAIL.decode(), "name": "Ada"},
    history=[[{"ssn": SSN.decode()}], {"deep": {"ssn": [SSN.decode()]}}],
)
ESCAPED = (
    b'{"region":"eu","amount":1.10,"\\u0073sn":"%b","payment":{"card":"%b"},"payment":{"card":"%b"},"payment":7,'
    b'"number":123456789012345678901234567890}' % (SSN, CARD, CARD)
)
FRAMED = bytes([0, 0, 0, 0, 42]) + b'\x02{"region":"us"}'
UNTOUCHED = b'{ "region" : "eu", "amount": 3, "n": 1.10 }'
RECORDS: list[tuple[bytes | None, bytes | None]] = [
    (b"0", PERSONAL),
    (b"1", order("us", customer={"email": EMAIL.decode()})),
    (b"2", None),
    (b"3", b"card " + CARD),
    (None, ESCAPED),
    (b"5", FRAMED),
    (b"6", UNTOUCHED),
    (b"7", b'{"region":"eu","ssn":"%b"}' % SSN),
    (b"8", order("eu", poison=True)),
    (b"9", order("eu", last=True)),
]
RULES = [
    {"name": "eu", "keep": "value.region = 'eu' AND value.amount > 0"},
    {"name": "cards", "mask": ["payment.card", "..ssn"]},
    {"name": "customer", "hash": {"fields": "customer.email", "key": "${secret:pii/key}"}},
    {"name": "trace", "headers": {"drop": "x-internal-.*", "rename": {"tenant": "source-tenant"}}},
    {"name": "own", "function": "poison-is-refused"},
]


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets" / "pii").mkdir(parents=True)
    (tmp_path / "secrets" / "pii" / "key").write_text(KEY)
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path / "secrets"))


def poison_is_refused(records: pa.RecordBatch) -> pa.RecordBatch:
    if any(value and b"poison" in value for value in records.column("value").to_pylist()):
        raise ValueError(CARD.decode())
    return records


def held_below(folder: Path, *originals: bytes) -> set[bytes]:
    """Return which of these stand in a file below a folder; a broker deletes old topics meanwhile."""
    found: set[bytes] = set()
    for place, _, names in os.walk(folder):
        for name in names:
            # A broker's indexes hold offsets alone, and 20 MB of zeros for each partition.
            if not name.endswith("index"):
                with suppress(FileNotFoundError):
                    content = Path(place, name).read_bytes()
                    found |= {original for original in originals if original in content}
    return found


@pytest.mark.law("D", "G")
def test_originals_never_reach_the_target_and_what_is_withheld_is_explained(
    pair: Pair, key: None, event_log: Path
) -> None:
    topic = pair.topic
    pair.create(partitions=1)
    headers = [("tenant", b"t1"), ("x-internal-host", INTERNAL), ("tenant", None)]
    send(pair.east, topic, [{"value": v, "key": k, "partition": 0, "headers": headers} for k, v in RECORDS])

    # Defined in here, as in a notebook: no worker could import it.
    ml.rule_function("poison-is-refused", lambda records: poison_is_refused(records))
    flows = [
        pair.flow(
            name=execution,
            policy={"template": f"{execution}.{{topic}}"},
            execution=execution,
            lanes=1,
            # Bytes on the broker's disk are then the bytes of the records.
            producer={"compression.type": "none"},
            rules=RULES,
        )
        for execution in EXECUTIONS
    ]
    mirror = pair.mirror(*flows)
    plan = mirror.apply()
    assert sorted(change.name for change in plan.changes if change.kind == "rule") == sorted(
        2 * [str(rule["name"]) for rule in RULES]
    )
    assert {(note.where, note.name) for note in plan.notes} == {
        (f, r) for f in EXECUTIONS for r in ("cards", "customer")
    }
    assert not mirror.plan(), "law G"

    mirror.run(once=True)

    for execution in EXECUTIONS:
        _check_target(pair.target(f"{execution}.{topic}")[0])
        _check_explanations(mirror, execution, topic)
    originals = (CARD, SSN, EMAIL, INTERNAL)
    found = held_below(Path(pair.central.directory), *originals, UNTOUCHED)
    assert found == {UNTOUCHED}, "originals stand on the target, or these files are not the target's"
    keys = (KEY, KEY.encode().hex(), base64.b64encode(KEY.encode()).decode())
    found = held_below(event_log, *originals, *(key.encode() for key in keys), topic.encode())
    assert found == {topic.encode()}, (
        "originals or the key stand in Spark's event log, or it is not that of these queries"
    )
    assert [row["value"] for row in sorted(pair.landed(), key=itemgetter("offset"))] == [value for _, value in RECORDS]
    assert [one.differences for one in mirror.verify()] == [(), ()]
    audit = mirror.query("SELECT after FROM audit WHERE object LIKE 'rule %'").to_pylist()
    definitions = [json.loads(row["after"]) for row in audit]
    assert len(definitions) == 2 * len(RULES), "each once"
    assert KEY not in json.dumps(definitions)
    assert "${secret:pii/key}" in json.dumps(definitions)


def quarantined(mirror: ml.Mirror, flow: str, topic: str) -> list[tuple[int, bytes | None]]:
    rows = rows_of(mirror, "quarantine", topic)
    return sorted((row["offset"], row["value"]) for row in rows if row["flow"] == flow)


def _check_target(found: list[Record]) -> None:
    by_key = {record.key: record for record in found}
    assert [record.key for record in found] == [b"0", b"2", None, b"5", b"6", b"9"], "law D"
    personal = json.loads(by_key[b"0"].value or b"")
    digest = hmac.new(KEY.encode(), EMAIL, hashlib.sha256).hexdigest()
    assert personal == {
        "region": "eu",
        "amount": 12.5,
        "payment": {"card": "***", "iban": None},
        "customer": {"email": digest, "name": "Ada"},
        "history": [[{"ssn": "***"}], {"deep": {"ssn": "***"}}],
    }
    escaped = b'{"region":"eu","amount":1.10,"ssn":"***","payment":7,"number":123456789012345678901234567890}'
    assert by_key[None].value == escaped
    assert (by_key[b"2"].value, by_key[b"5"].value, by_key[b"6"].value) == (None, FRAMED, UNTOUCHED)
    headers = (("source-tenant", b"t1"), ("source-tenant", None))
    assert {record.headers for record in found} == {headers}


def _check_explanations(mirror: ml.Mirror, execution: str, topic: str) -> None:
    flow = mirror[execution]
    versions = {rule.rule: rule.version for rule in flow.rules()}
    found = [flow.offsets.translate(topic, 0, offset) for offset in range(len(RECORDS))]
    for offset in (1, 7):
        assert isinstance(found[offset], Filtered)
        assert (found[offset].rule, found[offset].version) == ("eu", versions["eu"])  # type: ignore[union-attr]
    reasons = {3: ("eu", "not JSON"), 8: ("own", "the function raised ValueError")}
    for offset, (rule, reason) in reasons.items():
        one = found[offset]
        assert isinstance(one, Quarantined)
        assert (one.rule, one.version, one.reason) == (rule, versions[rule], reason)
    assert [type(found[offset]) for offset in (0, 2, 4, 5, 6, 9)] == [Exact] * 6
    assert quarantined(mirror, execution, topic) == [(offset, RECORDS[offset][1]) for offset in reasons]
    trial = flow.try_rules(topic, 100)
    assert (trial.records, trial.sent, trial.filtered, trial.quarantined) == (10, 6, 2, 2)
    assert {(one.rule, one.reason) for one in trial.reasons} == {("eu", ""), *reasons.values()}
    last = flow.try_rules(topic, 1)
    assert (last.records, last.sent, last.filtered) == (1, 1, 0), "the newest"


COUNT = 60
FIFTH, SEVENTH = range(0, COUNT, 5), sorted({*range(0, COUNT, 7)} - {*range(0, COUNT, 5)})
SENT = [offset for offset in range(COUNT) if offset % 5 and offset % 7]


def without_fifth(records: pa.RecordBatch) -> pa.RecordBatch:
    return records.filter(pa.array([offset % 5 != 0 for offset in records.column("offset").to_pylist()]))


def shout(records: pa.RecordBatch) -> pa.RecordBatch:
    values = pc.binary_join_element_wise(b"V1-", pc.binary_slice(records.column("value"), 3), b"")
    return records.set_column(records.schema.get_field_index("value"), "value", values)


def shout_no_seventh(records: pa.RecordBatch) -> pa.RecordBatch:
    if any(offset % 7 == 0 for offset in records.column("offset").to_pylist()):
        raise ValueError("nobody knows")
    return shout(records)


def rules_with(second: str) -> list[dict[str, str]]:
    for name, function in (("fifth", without_fifth), ("shout", shout), ("picky", shout_no_seventh)):
        ml.rule_function(name, function)
    return [{"name": "fifth", "function": "fifth"}, {"name": "second", "function": second}]


@pytest.mark.law("E", "F")
def test_law_e_withheld_records_are_accounted_for_and_redriven_once(pair: Pair) -> None:
    topic = pair.topic
    pair.create(COUNT, partitions=1)
    commit(pair.east, "billing", topic, {0: 0})

    def mirror_with(second: str) -> ml.Mirror:
        settings: dict[str, Any] = {"rules": rules_with(second), "sync": {"groups": False}}
        fed = pair.flow(name="fed", execution="streaming", policy={"template": "fed.{topic}"}, **settings)
        return pair.mirror(pair.flow(**settings), fed)

    mirror = mirror_with("picky")
    mirror.apply()
    mirror.run(once=True)
    for flow, remote in (("east->central", pair.remote), ("fed", f"fed.{topic}")):
        assert [r.value for r in pair.target(remote)[0]] == [b"V1-%d" % offset for offset in SENT]
        assert quarantined(mirror, flow, topic) == [(offset, b"v1-%d" % offset) for offset in SEVENTH]
    handle = mirror["east->central"]
    versions = {rule.rule: rule.version for rule in handle.rules()}
    for offset in range(COUNT):
        found = handle.offsets.translate(topic, 0, offset)
        if offset in FIFTH:
            assert isinstance(found, Filtered), f"law E: {offset}: {found}"
            assert (found.rule, found.version) == ("fifth", versions["fifth"])
        elif offset in SEVENTH:
            assert isinstance(found, Quarantined), f"law E: {offset}: {found}"
            assert (found.rule, found.reason) == ("second", "the function raised ValueError")
        else:
            assert isinstance(found, Exact), f"law E: {offset}: {found}"
    [group] = mirror.plan_groups("east->central")
    assert (group.resume.exact, group.resume.downstream_offset) == (True, 0), "what a rule withheld is not waited for"
    [proof] = handle.verify().partitions
    assert (proof.republished, proof.withheld, proof.verified) == (len(SENT), COUNT - len(SENT), len(SENT))

    # Nothing can be judged yet: nothing is sent, nothing is lost, nothing is told twice.
    done = handle.quarantine.redrive()
    assert (done.sent, done.filtered, done.still_quarantined) == (0, 0, len(SEVENTH))
    assert [one.records for one in handle.quarantine.summary()] == [len(SEVENTH)]
    mirror = mirror_with("shout")
    mirror.apply()
    for flow, remote in (("east->central", pair.remote), ("fed", f"fed.{topic}")):
        assert mirror[flow].quarantine.redrive().sent == len(SEVENTH)
        assert mirror[flow].quarantine.redrive().sent == 0, "law F"
        assert [r.value for r in pair.target(remote)[0]][len(SENT) :] == [b"V1-%d" % offset for offset in SEVENTH]
        assert mirror[flow].quarantine.summary() == []
        assert isinstance(mirror[flow].offsets.translate(topic, 0, 7), Exact)
    pair.produce(5, seed=2)
    mirror.run(once=True)
    report = mirror["east->central"].verify()
    assert report.equal, f"records of the older rules are there, those of the newer are compared: {report.differences}"


@pytest.mark.law("E", "F")
def test_law_f_copies_that_a_death_kept_from_the_lake_are_made_at_the_next_start(pair: Pair) -> None:
    pair.create(partitions=1)
    values = {**dict.fromkeys(FIFTH, b'{"kept": false}'), **dict.fromkeys(SEVENTH, b"no JSON")}
    send(pair.east, pair.topic, [(values.get(n, b'{"kept": true}'), b"%d" % n, 0) for n in range(COUNT)])
    mirror = pair.mirror(rules=[{"name": "kept", "keep": "value.kept = true"}])
    # Before the first table, and between two.
    for number in (1, 2):
        with dying("ledger.copying", nth=number):
            mirror.run(once=True)
        assert len(pair.target()[0]) == len(SENT), "the transaction was complete"
        assert quarantined(mirror, "east->central", pair.topic) == []
    mirror.run(once=True)
    assert quarantined(mirror, "east->central", pair.topic) == [(offset, b"no JSON") for offset in SEVENTH]
    withheld = rows_of(mirror, "withheld", pair.topic)
    assert sum(row["record_count"] for row in withheld) == len(FIFTH) + len(SEVENTH), "law F: nothing is told twice"
    assert len(pair.target()[0]) == len(SENT)
    assert mirror["east->central"].verify().equal
