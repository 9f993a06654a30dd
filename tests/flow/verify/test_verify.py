"""What a verification says, and of what: a fixed cut beside a running flow, records that wait, stand twice, or are strange."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from mirrorlake.config.schema.background import VerifyConfig
from mirrorlake.lake import proven_until, quote
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition
from mirrorlake.verify import verifications
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import ABORTED, consume, end_of, odd_record, produce, send, send_transactions
from tests.servers.lakes import Pair
from tests.unit.markup import unwrapped


def double(mirror: Mirror, topic: str, partition: int, offsets: list[int]) -> None:
    """Append records of the relay to it once more, as a second lander would."""
    location = mirror.lake.relay_location("east")
    rows = mirror.lake.relay("east").where((F.col("topic") == topic) & (F.col("partition") == partition))
    mirror.lake.append(rows.where(F.col("offset").isin(offsets)).coalesce(1), location)


@pytest.mark.law("E")
def test_law_e_equal_is_said_of_a_fixed_cut_and_of_what_was_compared_only(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, flow_name = pair.topic, "east->central"
    pair.create(210)
    mirror = pair.mirror()
    mirror.land("east", once=True)
    ended = pair.cli("verify", "--json")
    document = json.loads(ended.stdout)
    assert (ended.returncode, document["equal"]) == (1, False), "law E: called equal what was never republished"
    found = [(d["problem"], d["partition"], d["offset"], d["records"]) for d in document["differences"]]
    assert found == [("not_republished", 0, 0, 105), ("not_republished", 1, 0, 105)]
    mirror.republish(flow_name, once=True)

    # What a running flow does between the cut and the comparison.
    verifier = verifications.Verifier

    def meanwhile(*steps: Any) -> None:
        class Later(verifier):  # type: ignore[misc, valid-type]
            def run(self) -> Any:
                for step in steps:
                    step()
                return super().run()

        monkeypatch.setattr(verifications, "Verifier", Later)

    meanwhile(
        lambda: pair.produce(40, seed=2),
        lambda: mirror.land("east", once=True),
        lambda: mirror.republish(flow_name, once=True),
    )
    [report] = mirror.verify()
    assert report.equal, ("law E: what came after the cut was compared", report.differences[:3])
    assert (report.verified, report.not_compared) == (210, 0)

    pair.produce(30, seed=3)
    mirror.land("east", once=True)
    meanwhile(lambda: mirror.republish(flow_name, once=True))
    [report] = mirror.verify()
    assert report.equal, ("law E: what was on its way at the cut is called missing", report.differences[:3])
    assert (report.verified, report.not_compared) == (250, 30), "and not called equal either"

    monkeypatch.undo()
    double(mirror, topic, 0, [3, 4, 90])
    produce(pair.central, pair.remote, 2, partitions=1, prefix="stranger")
    [report] = mirror.verify()
    doubled = [(d.topic, d.partition, d.offset, d.records) for d in report.differences if d.problem == "doubled"]
    assert doubled == [(topic, 0, offset, 2) for offset in (3, 4, 90)]
    assert Counter((d.where, d.problem) for d in report.differences) == {
        ("relay", "doubled"): 3,
        ("target", "extra"): 2,
    }
    assert [p.landed for p in report.partitions] == [140, 140], "a record that stands twice is one record"
    assert report.verified == 140, "of the partition without a difference"


def tamper(mirror: Mirror, topic: str) -> dict[str, list[int]]:
    """Drop, double, alter and swap records of the relay in partition 0; return the offsets by what was done."""
    location = mirror.lake.relay_location("east")
    where = f"topic = {quote(topic)} AND partition = 0"
    relay = mirror.lake.relay("east")
    rows = [row.asDict(recursive=True) for row in relay.where(where).orderBy("offset").collect()]
    places = {"dropped": [70], "doubled": [200], "altered": [330], "swapped": [410, 415]}
    at = {name: [rows[number]["offset"] for number in numbers] for name, numbers in places.items()}
    rows[330]["value"] = b"another value"
    for name in ("timestamp", "key", "value", "headers"):
        rows[410][name], rows[415][name] = rows[415][name], rows[410][name]
    rows.append(rows[200])
    del rows[70]
    tampered = mirror.lake.spark.createDataFrame([tuple(row.values()) for row in rows], relay.schema)
    mirror.lake.set_properties(location, {"delta.appendOnly": "false"})
    mirror.lake.replace(tampered.coalesce(1).sortWithinPartitions("offset"), location, where=where)
    return at


@pytest.mark.law("C", "E")
def test_law_e_what_is_proven_is_not_read_again_and_what_changes_then_is_found_by_a_full_one(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    flow = mirror.config.flow("east->central")
    first = proven_until(mirror.lake, flow)
    assert set(first) == {SourcePartition(topic, 1, p) for p in (0, 1)}

    send_transactions(pair.east, topic, transactions(101, 8))
    mirror.run(once=True)
    [report] = Mirror(mirror.config, spark=mirror.lake.spark).verify()
    assert report.equal, report.differences
    assert (report.verified, report.proven_before, report.not_compared) == (1620, 1500, 0), "law E: read again"
    second = proven_until(mirror.lake, flow)
    assert all(second[source] > position for source, position in first.items())

    at = tamper(mirror, topic)
    assert mirror.verify()[0].equal, "what is proven is not read again"
    [report] = mirror.verify(full=True)
    found = sorted((d.where, d.problem, d.offset) for d in report.differences)
    remote = {
        offset: mirror.translate(flow.name, topic=topic, partition=0, offset=offset).offset
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
    assert proven_until(mirror.lake, flow)[SourcePartition(topic, 1, 0)] <= at["dropped"][0]
    [report] = mirror.verify()
    assert not report.equal, "law E: what is known to differ is forgotten"
    assert sum(p.proven_before for p in report.partitions if p.partition == 1) == 810


@pytest.mark.law("E")
def test_law_e_a_part_proves_no_more_than_it_read_a_report_can_be_made_again_and_a_running_mirror_proves_by_itself(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, flow_name, day = pair.topic, "east->central", timedelta(days=1)
    pair.create()
    began = datetime.now(timezone.utc).replace(microsecond=0) - 3 * day

    def stamp(days: int) -> int:
        return int((began + days * day).timestamp() * 1000)

    send(
        pair.east,
        topic,
        [{"value": b"%d" % n, "partition": n % 2, "timestamp": stamp(n // 200)} for n in range(600)],
    )
    mirror = pair.mirror()
    mirror.run(once=True)
    flow = mirror.config.flow(flow_name)
    both = [SourcePartition(topic, 1, p) for p in (0, 1)]

    def verified(*arguments: str) -> tuple[dict[str, Any], tuple[int, int, int]]:
        ended = pair.cli("verify", "--json", *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        document = json.loads(ended.stdout)
        [one] = document["flows"]
        return document, (one["verified"], one["proven_before"], one["not_compared"])

    since, until = (f"{began + days * day:%Y-%m-%dT%H:%M:%SZ}" for days in (1, 2))
    assert verified("--since", since, "--until", until)[1] == (200, 0, 400)
    assert proven_until(mirror.lake, flow) == {}, "law E: what precedes the stretch counts as proven"

    page, again = tmp_path / "proof.html", tmp_path / "again.html"
    document, counts = verified("--report", str(page))
    assert counts == (600, 200, 0), "law E: what the stretch proved is read again"
    assert proven_until(mirror.lake, flow) == dict.fromkeys(both, 300)
    signed = json.loads(page.with_suffix(".json").read_text())
    assert (signed["verification"], signed["equal"]) == (document["verification"], True)
    assert signed["fingerprint"] in unwrapped(page.read_text())
    assert signed["ends"] == {
        **{f"east.{source}": 300 for source in both},
        **{f"{flow_name} {source}": 300 for source in both},
        **{f"->{pair.remote}-{p}": end_of(pair.central, pair.remote, p) for p in (0, 1)},
    }
    made = pair.cli("verify", "--of", document["verification"], "--report", str(again), "--json")
    assert made.returncode == 0, made.stderr
    remade = json.loads(again.with_suffix(".json").read_text())
    # What was found equal is not in the table; what was proven is.
    assert remade == {**signed, "equal": None, "flows": []}
    assert pair.cli("verify", "--of", "none", "--report", str(again)).returncode == 2
    assert verified("--report", str(page))[1] == (600, 600, 0)
    assert json.loads(page.with_suffix(".json").read_text())["proofs"] == [], "nothing was new, and that is no mistake"

    logged = mirror.config.model_copy(update={"verify": VerifyConfig.model_validate({"every": "1s"})})
    with caplog.at_level(logging.ERROR), staying_on(Mirror(logged, spark=mirror.lake.spark)):
        pair.produce(50, seed=2)
        wait_until(lambda: proven_until(mirror.lake, flow) == dict.fromkeys(both, 325), "what came is proven")
        assert "verify.different" not in caplog.text
        produce(pair.central, pair.remote, 2, partitions=1, prefix="stranger")
        wait_until(lambda: "problem='extra'" in caplog.text, "what differs is logged")
    assert proven_until(mirror.lake, flow) == dict.fromkeys(both, 325)


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
