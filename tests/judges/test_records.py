"""Records as people see them: every offset accounted for from each side, and what stands on a cluster shown as text (laws C, E, H)."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from mirrorlake.errors import TopicDenied, UsageError
from tests.kit.records import Where, add_partitions, commit, send, send_transactions
from tests.servers.lakes import Pair
from tests.unit.markup import Markup

START = int(time.time() * 1000) - 60_000
RULES = [{"name": "only-large", "keep": "value.n >= 3"}]
LANDED = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14]


def write(where: Where, topic: str) -> None:
    """Offsets 0..9 plain (4 is not JSON), 10..11 aborted, 12 the marker, 13..14 committed, 15 the marker."""
    for number in range(10):
        value = b"\xff<script>" if number == 4 else json.dumps({"n": number}).encode()
        key = None if number == 5 else b"" if number == 6 else b"k"
        record = {"value": value, "key": key, "partition": 0, "timestamp": START + number * 1000}
        send(where, topic, [{**record, "headers": [("h", None), ("h", b"\x00")]}])

    def of(*numbers: int) -> list[dict[str, object]]:
        known = {"key": b"k", "partition": 0}
        return [{**known, "value": json.dumps({"n": n}), "timestamp": START + n * 1000} for n in numbers]

    send_transactions(where, topic, [(of(10, 11), False), (of(13, 14), True)])


@pytest.mark.law("C", "E")
def test_law_e_the_passport_accounts_for_every_offset_from_every_side(pair: Pair) -> None:
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
    assert [r.offset for r in source.records] == [r.offset for r in relay.records] == LANDED
    assert [r.content for r in source.records] == [r.content for r in relay.records], "law C"
    kept = [record for record in source.records if record.offset not in (0, 1, 2, 4)]
    assert [r.content for r in target.records] == [r.content for r in kept], "law C"
    assert {(one.first, one.last, one.kind) for one in source.missing} == {(10, 12, "absent"), (15, 15, "absent")}
    assert [(one.first, one.last, one.kind) for one in relay.missing] == [(10, 12, "transactional")]
    assert (source.next, source.end, source.is_last) == (16, 16, True)
    assert {record.landed_at_ms is None for record in relay.records} == {False}

    def at(milliseconds: int) -> datetime:
        return datetime.fromtimestamp((START + milliseconds) / 1000, timezone.utc)

    for side in (False, True):
        page = mirror.browse("east", topic, at=at(6_500), count=2, relay=side)
        assert ([r.offset for r in page.records], page.next, page.is_last) == ([7, 8], 9, False)
        small = mirror.browse("east", topic, offset=2, max_bytes=1, relay=side)
        assert [r.offset for r in small.records] == [2], "one record is always given"
        newest = mirror.browse("east", topic, count=3, relay=side)
        assert newest.records[-1].offset == 14, "the newest without an offset"
        for match, offset in (({"key": b""}, 6), ({"where": "$.n = 8"}, 8), ({"contains": "<script>"}, 4)):
            found = mirror.browse("east", topic, relay=side, **match)
            assert [r.offset for r in found.records] == [offset], f"{match}; an empty key is not a null one"
    # The index of a cluster finds the marker of the aborted transaction, which has the time of its end, and stands before 13.
    for alias, name, side in (("east", topic, False), ("east", topic, True), ("central", remote, False)):
        page = mirror.browse(alias, name, at=at(13_500), relay=side)
        assert [r.timestamp_ms for r in page.records] == [START + 14_000], (alias, side)
        late = mirror.browse(alias, name, at="now", relay=side)
        assert (late.records, "the newest is of" in late.note) == ((), True), (alias, side)
    with pytest.raises(UsageError, match="no such topic"):
        mirror.browse("east", "no-such-topic")
    with pytest.raises(UsageError, match="1 partition"):
        mirror.browse("east", topic, 1)
    with pytest.raises(UsageError, match="nothing of"):
        mirror.browse("east", topic, 1, relay=True)
    with pytest.raises(TopicDenied, match="never leaves"):
        mirror.passport("east", f"{topic}-pii", 0, 0)

    fates = {0: "filtered", 4: "quarantined", 5: "republished", 14: "republished", 11: None, 15: None}
    for offset, fate in fates.items():
        passport = mirror.passport("east", topic, 0, offset)
        assert passport.accounted_for, f"law E: {passport}"
        if fate is None:
            assert passport.landed is None
            assert offset == 15 or (passport.missing and passport.missing.kind == "transactional")
            continue
        first, other = passport.outcomes
        assert (first.status, other.status) == (fate, "not_carried")
        assert passport.record == relay.records[LANDED.index(offset)]
        assert passport.landed is not None
        assert Path(passport.landed.file.removeprefix("file:").replace("///", "/")).exists(), "the very file"
        assert first.rule == ("only-large" if offset in (0, 4) else first.rule)
        assert offset != 4 or first.reason
        if fate == "republished":
            assert (str(first.place), first.offset is None) == (f"{remote}-0", False)
            [there] = mirror.browse("central", remote, offset=first.offset, count=1).records
            assert (there.offset, there.content) == (first.offset, passport.record.content), "laws C and E"
            back = mirror.passport("central", remote, 0, first.offset)
            assert back == passport, "the same record, whichever side it is asked from"
        assert None not in (first.lane, first.ledger_seq)

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
    values = [record["value"] for record in pair.told("records", *where, "0", "--count", "2")["records"]]
    assert values == [{"text": '{"n": 3}'}, {"text": '{"n": 5}'}]
    document = pair.told("passport", *where, "0")
    assert document["source"] == {"topic": topic, "generation": 1, "partition": 0, "offset": 3}
    assert document["outcomes"][0]["place"] == {"topic": remote, "partition": 0}
    done = pair.cli("passport", *where, "999")
    assert (done.returncode, "not a mirrored record" in done.stdout) == (1, True)
    assert pair.cli("records", "--cluster", "east", "--topic", f"{topic}-pii").returncode == 3

    ends = threading.Event()
    late_end = threading.Timer(400, ends.set)
    late_end.start()
    grown = mirror.tail("east", topic, stop=ends)
    add_partitions(pair.east, topic, 2)
    send(pair.east, topic, [(b"new", None, 1)])
    one = next(grown)
    late_end.cancel()
    ends.set()
    assert list(grown) == []
    assert (one.partition, one.offset, one.value) == (1, 0, b"new"), "a partition that the topic got meanwhile"


SCRIPT = "<script>alert('x')</script>"
IMAGE = "\x1b[2J</td><img src=x onerror=alert(1)>"


def test_what_stands_on_a_cluster_is_shown_as_text_and_is_no_command_of_a_page_or_a_terminal(pair: Pair) -> None:
    pair.create(partitions=1)
    send(pair.east, pair.topic, [{"value": SCRIPT, "key": IMAGE, "headers": [(SCRIPT, IMAGE.encode())]}])
    commit(pair.east, SCRIPT, pair.topic, {0: 1}, metadata=IMAGE)
    mirror = pair.mirror(groups=["<script>.*"])
    flow = mirror["east->central"]
    plan, ran = mirror.apply(), mirror.run(once=True)
    groups, status, report = flow.groups(), mirror.status(), mirror.verify()
    held, browsed = flow.pause(reason=IMAGE), mirror.browse("east", pair.topic)
    values = [mirror, flow, plan, ran, groups, status, status[flow.name], report, report[0], held, browsed]
    values += [flow.offsets.translate(pair.topic, 0, 0), mirror.passport("east", pair.topic, 0, 0), mirror.doctor()]
    tracker = mirror.spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(None))
    for value in values:
        assert Markup(value._repr_html_()).foreign == [], type(value)
        lines = [*str(value).split("\n"), *repr(value).split("\n")]
        assert [line for line in lines if "\x1b" in line] == [], type(value)
    assert len(tracker.getJobIdsForGroup(None)) == before, "showing a value started a Spark job"
    for value in (groups, browsed):
        assert SCRIPT in Markup(value._repr_html_()).text
    assert "<img src=x onerror=alert(1)>" in Markup(groups._repr_html_()).text, "the metadata of a commit"
    assert str(status).startswith("Status: ✓ OK · 1 flow · 1 partition · offset lag 0")
    assert str(report).startswith("verify: ✓ equal · 1 flow · 1 record verified")
    assert str(ran).startswith("run: 1 record landed · 1 record republished")
    for command in (("groups", "--flow", flow.name, "--wide"), ("records", "--cluster", "east", "--topic", pair.topic)):
        said = pair.cli(*command)
        assert (said.returncode, SCRIPT[:12] in said.stdout, "\x1b" in said.stdout) == (0, True, False), said.stdout
