"""What a verification says, and of what: a fixed cut beside a running flow, records that wait, stand twice, or are strange."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as F

from mirrorlake import verify
from mirrorlake.mirror import Mirror
from tests.flow.kit import produce
from tests.servers.lakes import Pair


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
    compare = verify.verify_flow

    def meanwhile(*steps: Any) -> None:
        def verify_flow(*args: Any, **kwargs: Any) -> Any:
            for step in steps:
                step()
            return compare(*args, **kwargs)

        monkeypatch.setattr(verify, "verify_flow", verify_flow)

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
