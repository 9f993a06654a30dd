"""Rules on real brokers: what a target gets of personal data, and how everything that it does not get is explained."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import mirrorlake as ml
from mirrorlake.lake.schema import QUARANTINE
from mirrorlake.model.offset_map import Exact, Filtered, Quarantined
from tests.kit.records import Record, send
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
    relay = mirror.lake.relay("east").where(F.col("topic") == topic).orderBy("offset")
    assert [row.value and bytes(row.value) for row in relay.collect()] == [value for _, value in RECORDS]
    assert [one.differences for one in mirror.verify()] == [(), ()]
    definitions = [entry.after for entry in mirror._context.audit().entries("lake", "rule")]
    assert len(definitions) == 2 * len(RULES), "each once"
    assert KEY not in json.dumps(definitions)
    assert "${secret:pii/key}" in json.dumps(definitions)


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
    rows = mirror.lake.meta(QUARANTINE).where(F.col("flow") == execution).orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(offset, RECORDS[offset][1]) for offset in reasons]
    trial = flow.try_rules(topic, 100)
    assert (trial.records, trial.sent, trial.filtered, trial.quarantined) == (10, 6, 2, 2)
    assert {(one.rule, one.reason) for one in trial.reasons} == {("eu", ""), *reasons.values()}
    last = flow.try_rules(topic, 1)
    assert (last.records, last.sent, last.filtered) == (1, 1, 0), "the newest"
