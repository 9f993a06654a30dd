"""Browse and passport: every record and every offset without one, seen from each side (laws C, E and H)."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from mirrorlake.errors import TopicDenied, UsageError
from mirrorlake.model.flow import TopicPartition
from tests.kit.records import Where, add_partitions, send, send_transactions
from tests.servers.lakes import Pair

START = int(time.time() * 1000) - 60_000
RULES = [{"name": "only-large", "keep": "value.n >= 3"}]


def write(where: Where, topic: str) -> None:
    """Offsets 0..9 plain (4 is not JSON), 10..11 aborted, 12 the marker, 13..14 committed, 15 the marker."""
    for number in range(10):
        value = b"\xff<script>" if number == 4 else json.dumps({"n": number}).encode()
        key = None if number == 5 else b"" if number == 6 else b"k"
        record = {"value": value, "key": key, "partition": 0, "timestamp": START + number * 1000}
        send(where, topic, [{**record, "headers": [("h", None), ("h", b"\x00")]}])
    transactions = [
        (
            [{"value": json.dumps({"n": n}), "key": b"k", "partition": 0, "timestamp": START + n * 1000} for n in ns],
            is_ok,
        )
        for ns, is_ok in (((10, 11), False), ((13, 14), True))
    ]
    send_transactions(where, topic, transactions)


@pytest.mark.law("C", "E")
def test_law_e_the_passport_accounts_for_every_offset_from_every_side(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, remote = pair.topic, pair.remote
    pair.create(partitions=1)
    write(pair.east, topic)
    flows = [pair.flow(topics=f"{topic}.*", rules=RULES), pair.flow(name="other", topics="unheard-of")]
    mirror = pair.mirror(*flows, east={"never_leave": f"{topic}-pii"})
    before = mirror.passport("east", topic, 0, 7)
    assert before.missing is not None
    assert before.missing.kind == "not_landed", "nothing was landed yet, and nothing is wrong"
    assert before.accounted_for
    mirror.run(once=True)

    source = mirror.browse("east", topic, offset=0, count=50)
    relay = mirror.browse("east", topic, offset=0, count=50, relay=True)
    target = mirror.browse("central", remote, offset=0, count=50)
    landed = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14]
    assert [r.offset for r in source.records] == [r.offset for r in relay.records] == landed
    assert [r.content for r in source.records] == [r.content for r in relay.records], "law C"
    kept = [record for record in source.records if record.offset not in (0, 1, 2, 4)]
    assert [r.content for r in target.records] == [r.content for r in kept], "law C"
    assert {(one.first, one.last, one.kind) for one in source.missing} == {(10, 12, "absent"), (15, 15, "absent")}
    assert [(one.first, one.last, one.kind) for one in relay.missing] == [(10, 12, "transactional")]
    assert (source.next, source.end, source.is_last) == (16, 16, True)
    assert {record.landed_at_ms is None for record in relay.records} == {False}

    at = datetime.fromtimestamp((START + 6500) / 1000, timezone.utc)
    for side in (False, True):
        page = mirror.browse("east", topic, at=at, count=2, relay=side)
        assert ([r.offset for r in page.records], page.next, page.is_last) == ([7, 8], 9, False)
        small = mirror.browse("east", topic, offset=2, max_bytes=1, relay=side)
        assert [r.offset for r in small.records] == [2], "one record is always given"
        newest = mirror.browse("east", topic, count=3, relay=side)
        assert newest.records[-1].offset == 14, "the newest without an offset"
        tombstoneless = mirror.browse("east", topic, key=b"", relay=side)
        assert [r.offset for r in tombstoneless.records] == [6], "an empty key is not a null one"
        assert [r.offset for r in mirror.browse("east", topic, where="$.n = 8", relay=side).records] == [8]
        assert [r.offset for r in mirror.browse("east", topic, contains="<script>", relay=side).records] == [4]

    # The index of a cluster finds the marker of the aborted transaction, which has the time of its end, and stands before 13.
    for alias, name, side in (("east", topic, False), ("east", topic, True), ("central", remote, False)):
        page = mirror.browse(alias, name, at=datetime.fromtimestamp((START + 13_500) / 1000, timezone.utc), relay=side)
        assert [r.timestamp_ms for r in page.records] == [START + 14_000], (alias, side)
        late = mirror.browse(alias, name, at="now", relay=side)
        assert late.records == ()
        assert "the newest is of" in late.note, (alias, side)
    with pytest.raises(UsageError, match="no such topic"):
        mirror.browse("east", "no-such-topic")
    with pytest.raises(UsageError, match="1 partition"):
        mirror.browse("east", topic, 1)
    with pytest.raises(UsageError, match="nothing of"):
        mirror.browse("east", topic, 1, relay=True)
    for look in (lambda: mirror.browse("east", f"{topic}-pii"), lambda: mirror.passport("east", f"{topic}-pii", 0, 0)):
        with pytest.raises(TopicDenied, match="never leaves"):
            look()

    for offset in (0, 4, 5, 11, 14, 15):
        found = mirror.passport("east", topic, 0, offset)
        assert found.accounted_for, f"law E: {found}"
        first, other = (*found.outcomes, None)[:2] if found.landed else (None, None)
        if offset == 11:
            assert found.missing is not None
            assert found.missing.kind == "transactional"
            continue
        if offset == 15:
            assert found.landed is None
            continue
        assert first is not None
        assert found.landed is not None
        assert found.record == relay.records[landed.index(offset)]
        assert Path(found.landed.file.removeprefix("file:").replace("///", "/")).exists(), "the very file"
        assert other is not None
        assert other.status == "not_carried"
        if offset == 0:
            assert (first.status, first.rule) == ("filtered", "only-large")
        elif offset == 4:
            assert first.status == "quarantined"
            assert first.reason
        else:
            assert (first.status, first.place) == ("republished", TopicPartition(remote, 0))
            assert first.offset is not None
            [there] = mirror.browse("central", remote, offset=first.offset, count=1).records
            assert (there.offset, there.content) == (first.offset, found.record.content), "laws C and E"
            back = mirror.passport("central", remote, 0, first.offset)
            assert back == found, "the same record, whichever side it is asked from"
        assert first.lane is not None
        assert first.ledger_seq is not None
    nobody = mirror.passport("central", remote, 0, 999)
    assert nobody.source is None
    assert "not a mirrored record" in nobody.words

    stop = threading.Event()
    tails = [
        mirror.tail("east", topic, stop=stop),
        mirror.tail("east", topic, where="offset = 16", relay=True, stop=stop),
    ]
    pair.produce(1)
    mirror.land("east", once=True)
    assert [next(tail).offset for tail in tails] == [16, 16], "what comes after the tail was asked for"
    stop.set()
    assert [list(tail) for tail in tails] == [[], []]
    [waiting, _] = mirror.passport("east", topic, 0, 16).outcomes
    assert waiting.status == "not_yet"

    where = ("--cluster", "central", "--topic", remote, "--offset")
    done = pair.cli("records", *where, "0", "--count", "2", "--json")
    assert done.returncode == 0
    assert [record["value"] for record in json.loads(done.stdout)["records"]] == [
        {"text": '{"n": 3}'},
        {"text": '{"n": 5}'},
    ]
    done = pair.cli("passport", *where, "0", "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["source"] == {"topic": topic, "generation": 1, "partition": 0, "offset": 3}
    assert document["outcomes"][0]["place"] == {"topic": remote, "partition": 0}
    done = pair.cli("passport", *where, "999")
    assert (done.returncode, "not a mirrored record" in done.stdout) == (1, True)
    denied = pair.cli("records", "--cluster", "east", "--topic", f"{topic}-pii")
    assert denied.returncode == 3

    monkeypatch.setenv("MIRRORLAKE_TIMING", "new_partitions_interval_s=0.2")
    ends = threading.Event()
    late = threading.Timer(400, ends.set)
    late.start()
    grown = mirror.tail("east", topic, stop=ends)
    add_partitions(pair.east, topic, 2)
    send(pair.east, topic, [(b"new", None, 1)])
    one = next(grown)
    late.cancel()
    ends.set()
    assert list(grown) == []
    assert (one.partition, one.offset, one.value) == (1, 0, b"new"), "a partition that the topic got meanwhile"
