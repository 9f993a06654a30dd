"""What a verification says, and of what: a fixed cut beside a running flow, records that wait, stand twice, or are strange."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import mirrorlake as ml
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import ABORTED, consume, end_of, odd_record, produce, producing, send, send_transactions
from tests.servers.lakes import Pair
from tests.unit.markup import unwrapped

FLOW = "east->central"


def landed(pair: Pair) -> pa.Table:
    """Return the records of partition 0 in the relay, in order (docs/tables.md)."""
    relay = DeltaTable(pair.lake / "relay" / "east")
    found = relay.to_pyarrow_table(filters=[("topic", "=", pair.topic), ("partition", "=", 0)])
    return found.sort_by("offset")


def proven(mirror: ml.Mirror) -> dict[int, int | None]:
    """Return up to where each partition is proven."""
    return {row.partition: row.proven_until for row in mirror.status(FLOW)[FLOW] if row.proven_until is not None}


@pytest.mark.law("E")
def test_law_e_equal_is_said_of_a_fixed_cut_and_of_what_was_compared_only(pair: Pair) -> None:
    pair.create(210)
    mirror = pair.mirror()
    mirror.land("east", once=True)
    document = pair.told("verify", code=1)
    assert not document["equal"], "law E: called equal what was never republished"
    found = [(d["problem"], d["partition"], d["offset"], d["records"]) for d in document["differences"]]
    assert found == [("not_republished", 0, 0, 105), ("not_republished", 1, 0, 105)]
    mirror.run(once=True)
    [report] = mirror.verify()
    assert (report.equal, report.verified, report.not_compared) == (True, 210, 0)

    # What comes between the cut and the comparison is not compared, and what was on its way at the cut is not missing.
    with staying_on(mirror), producing(pair.east, [pair.topic], "live", every_s=0.002) as sent:
        for _ in range(4):
            known = len(sent)
            wait_until(lambda known=known: len(sent) > known + 100, "records come")
            [report] = mirror.verify()
            assert report.equal, ("law E: a running flow is said to differ", report.differences[:3])
    mirror.run(once=True)
    [report] = mirror.verify()
    everything = 210 + len(sent)
    assert (report.equal, report.verified, report.not_compared) == (True, everything, 0)

    held = landed(pair)
    places = [place for place, offset in enumerate(held["offset"].to_pylist()) if offset in (3, 4, 90)]
    # As a second lander would.
    write_deltalake(pair.lake / "relay" / "east", held.take(places), mode="append")
    produce(pair.central, pair.remote, 2, partitions=1, prefix="stranger")
    [report] = mirror.verify()
    doubled = [(d.topic, d.partition, d.offset, d.records) for d in report.differences if d.problem == "doubled"]
    assert doubled == [(pair.topic, 0, offset, 2) for offset in (3, 4, 90)]
    assert Counter((d.where, d.problem) for d in report.differences) == {
        ("relay", "doubled"): 3,
        ("target", "extra"): 2,
    }
    assert sum(p.landed for p in report.partitions) == everything, "a record that stands twice is one record"
    [other] = [p.landed for p in report.partitions if p.partition == 1]
    assert report.verified == other, "of the partition without a difference"


def tamper(pair: Pair) -> dict[str, list[int]]:
    """Drop, double, alter and swap records of the relay in partition 0; return the offsets by what was done."""
    held = landed(pair)
    rows = held.to_pylist()
    places = {"dropped": [70], "doubled": [200], "altered": [330], "swapped": [410, 415]}
    at = {name: [rows[number]["offset"] for number in numbers] for name, numbers in places.items()}
    rows[330]["value"] = b"another value"
    for name in ("timestamp", "key", "value", "headers"):
        rows[410][name], rows[415][name] = rows[415][name], rows[410][name]
    rows.append(rows[200])
    del rows[70]
    relay = DeltaTable(pair.lake / "relay" / "east")
    relay.alter.set_table_properties({"delta.appendOnly": "false"})
    tampered = pa.Table.from_pylist(rows, held.schema).sort_by("offset")
    write_deltalake(relay, tampered, mode="overwrite", predicate=f"topic = '{pair.topic}' AND partition = 0")
    return at


@pytest.mark.law("C", "E")
def test_law_e_what_is_proven_is_not_read_again_and_what_changes_then_is_found_by_a_full_one(pair: Pair) -> None:
    topic, rng = pair.topic, random.Random(7)
    pair.create()

    def transactions(first: int, count: int) -> list[tuple[list[dict[str, Any]], bool]]:
        def one(number: int, *, committed: bool) -> list[dict[str, Any]]:
            value = b"%d" % number if committed else ABORTED
            return [{**odd_record(rng, number), "value": value, "partition": p} for p in (0, 1) for _ in range(10)]

        return [(one(number, committed=number % 4 != 0), number % 4 != 0) for number in range(first, first + count)]

    send_transactions(pair.east, topic, transactions(1, 100))
    mirror = pair.mirror()
    mirror.run(once=True)
    [report] = mirror.verify()
    assert report.equal, report.differences
    assert (report.verified, report.proven_before, report.not_compared) == (1500, 0, 0)
    first = proven(mirror)
    assert set(first) == {0, 1}

    send_transactions(pair.east, topic, transactions(101, 8))
    mirror.run(once=True)
    [report] = ml.load(pair.conf, spark=mirror.spark).verify()
    assert report.equal, report.differences
    assert (report.verified, report.proven_before, report.not_compared) == (1620, 1500, 0), "law E: read again"
    second = proven(mirror)
    assert all((second[partition] or 0) > (position or 0) for partition, position in first.items())

    at = tamper(pair)
    assert mirror.verify()[0].equal, "what is proven is not read again"
    [report] = mirror.verify(full=True)
    found = sorted((d.where, d.problem, d.offset) for d in report.differences)
    remote = {
        offset: mirror.translate(FLOW, topic=topic, partition=0, offset=offset).offset
        for o in at.values()
        for offset in o
    }  # type: ignore[union-attr]
    assert found == sorted(
        [
            ("relay", "missing", at["dropped"][0]),
            ("relay", "doubled", at["doubled"][0]),
            ("relay", "altered", at["altered"][0]),
            *(("relay", "out_of_order", offset) for offset in at["swapped"]),
            ("target", "extra", remote[at["dropped"][0]]),
            ("target", "altered", remote[at["altered"][0]]),
            *(("target", "out_of_order", remote[offset]) for offset in at["swapped"]),
        ]
    )
    assert {d.partition for d in report.differences} == {0}
    assert proven(mirror).get(0, 0) <= at["dropped"][0]
    [report] = mirror.verify()
    assert not report.equal, "law E: what is known to differ is forgotten"
    assert sum(p.proven_before for p in report.partitions if p.partition == 1) == 810


@pytest.mark.law("E")
def test_law_e_a_part_proves_no_more_than_it_read_a_report_can_be_made_again_and_a_running_mirror_proves_by_itself(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    day = timedelta(days=1)
    pair.create()
    began = datetime.now(timezone.utc).replace(microsecond=0) - 3 * day

    def stamp(days: int) -> int:
        return int((began + days * day).timestamp() * 1000)

    aged = ({"value": b"%d" % n, "partition": n % 2, "timestamp": stamp(n // 200)} for n in range(600))
    send(pair.east, pair.topic, aged)
    mirror = pair.mirror()
    mirror.run(once=True)

    def verified(*arguments: str) -> tuple[dict[str, Any], tuple[int, int, int]]:
        document = pair.told("verify", *arguments)
        [one] = document["flows"]
        return document, (one["verified"], one["proven_before"], one["not_compared"])

    since, until = (f"{began + days * day:%Y-%m-%dT%H:%M:%SZ}" for days in (1, 2))
    assert verified("--since", since, "--until", until)[1] == (200, 0, 400)
    assert proven(mirror) == {}, "law E: what precedes the stretch counts as proven"

    page, again = tmp_path / "proof.html", tmp_path / "again.html"
    document, counts = verified("--report", str(page))
    assert counts == (600, 200, 0), "law E: what the stretch proved is read again"
    assert proven(mirror) == {0: 300, 1: 300}
    signed = json.loads(page.with_suffix(".json").read_text())
    assert (signed["verification"], signed["equal"]) == (document["verification"], True)
    assert signed["fingerprint"] in unwrapped(page.read_text())
    source_ends = {name: end for name, end in signed["ends"].items() if not name.startswith("->")}
    assert (len(source_ends), set(source_ends.values())) == (4, {300}), "as landed, and as sent"
    ends = {f"->{pair.remote}-{p}": end_of(pair.central, pair.remote, p) for p in (0, 1)}
    assert signed["ends"] == {**source_ends, **ends}
    pair.told("verify", "--of", document["verification"], "--report", str(again))
    remade = json.loads(again.with_suffix(".json").read_text())
    # What was found equal is not in the table; what was proven is.
    assert remade == {**signed, "equal": None, "flows": []}
    assert pair.cli("verify", "--of", "none", "--report", str(again)).returncode == 2
    assert verified("--report", str(page))[1] == (600, 600, 0)
    assert json.loads(page.with_suffix(".json").read_text())["proofs"] == [], "nothing was new, and that is no mistake"

    conf = Path(pair.conf)
    conf.write_text(json.dumps({**json.loads(conf.read_text()), "verify": {"every": "1s"}}))
    with caplog.at_level(logging.ERROR), staying_on(ml.load(conf, spark=mirror.spark)):
        pair.produce(50, seed=2)
        wait_until(lambda: proven(mirror) == {0: 325, 1: 325}, "what came is proven")
        assert "verify.different" not in caplog.text
        produce(pair.central, pair.remote, 2, partitions=1, prefix="stranger")
        wait_until(lambda: "problem='extra'" in caplog.text, "what differs is logged")
    assert proven(mirror) == {0: 325, 1: 325}


@pytest.mark.law("E")
def test_law_e_a_compacted_source_that_is_written_on_differs_in_nothing(pair: Pair) -> None:
    pair.create(**{"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"})

    def write(version: int) -> None:
        keyed = ({"key": b"%d" % key, "value": b"%d" % version * 2000, "partition": key % 2} for key in range(40))
        send(pair.east, pair.topic, keyed)

    mirror = pair.mirror()
    mirror.apply()
    write(1)
    mirror.run(once=True)
    # What replaces the landed records is not landed; enough of it fills segments, which the cleaner may touch then.
    for version in range(2, 80):
        write(version)
    wait_until(lambda: consume(pair.east, pair.topic)[0][0].offset >= 20, "what was landed has left the source")
    [report] = mirror.verify()
    assert report.equal, ("law E: a record that a later one replaced is called lost", report.differences[:3])
