"""Positions over time against real brokers: what is sampled, what it costs to sample nothing, and what lag is made of it."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import functions as F

from mirrorlake.lag import Monitor
from mirrorlake.lake.samples import load_last_samples
from mirrorlake.lake.schema import GAPS, OFFSET_MAP, POSITIONS, SAMPLES
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import commit, new_topic
from tests.servers.lakes import MakeMirror, Pair

FLOW = "east->central"


def milliseconds(time: datetime) -> int:
    return int(time.astimezone(timezone.utc).timestamp() * 1000)


@pytest.mark.law("E")
def test_what_is_sampled_tells_the_lag_of_every_hop_exactly(pair: Pair) -> None:
    topic = pair.topic
    pair.create(20, partitions=1)
    mirror = pair.mirror(sync={"groups": False})
    mirror.run(once=True)
    billing, audit = f"billing-{topic}", f"audit-{topic}"
    commit(pair.east, billing, topic, {0: 5})
    commit(pair.central, audit, pair.remote, {0: 8})

    sampler = mirror._context.shared(Monitor).sampler()
    first = sampler.once()
    assert not first.unanswered
    assert {(look.subject, look.name) for look in first.looks} == {
        ("cluster", "east"),
        ("cluster", "central"),
        ("relay", "east"),
        ("flow", FLOW),
    }
    assert all(look.complete for look in first.looks)
    pair.produce(10, seed=2)
    second = sampler.once()
    assert second.changed == 1, "only the end of the source has moved"
    stamps = [record.timestamp for record in pair.source()[0]]

    fresh = {(row.hop, row.group_id): row for row in mirror[FLOW].lag.now().collect() if row.topic == topic}
    landed = fresh["landed", None]
    assert (landed.position, landed.end_position, landed.offset_lag) == (20, 30, 10)
    assert milliseconds(landed.waiting_since) == stamps[20], "read from the source: it is not landed"
    assert milliseconds(fresh["consumed", billing].waiting_since) == stamps[5]
    assert milliseconds(fresh["consumed", audit].waiting_since) == stamps[8]
    assert_status_says_what_lag_says(mirror, topic)

    mirror.run(once=True)
    # Another sampler goes on where the first one ended.
    third = mirror.sample()
    assert sorted(key.kind for key in changed(mirror, third.observed_at)) == ["reached", "republished"]
    idle = mirror.sample()
    assert (idle.changed, idle.unanswered) == (0, ())
    idle_at = idle.observed_at
    assert changed(mirror, idle_at) == []
    assert mirror.lake.meta(SAMPLES).where(F.col("observed_at") == F.lit(idle_at)).count() == 4

    rows = [row for row in mirror.lag.over(since="1h").collect() if row.topic == topic]
    told = {(milliseconds(row.observed_at), row.hop, row.group_id): row for row in rows}
    assert len(told) == len(rows) == 4 * 4
    moment = milliseconds(second.observed_at)
    for hop, group, position in (
        ("landed", None, 20),
        ("republished", None, 20),
        ("consumed", billing, 5),
        ("consumed", audit, 8),
    ):
        row = told[moment, hop, group]
        assert (row.position, row.offset_lag) == (position, 30 - position)
        assert milliseconds(row.waiting_since) == stamps[position], f"{hop} {group}: by its own timestamp"
        assert row.time_lag_ms == max(0, moment - stamps[position])
    for hop in ("landed", "republished"):
        row = told[milliseconds(idle_at), hop, None]
        assert (row.offset_lag, row.waiting_since, row.time_lag_ms) == (0, None, 0), "an idle topic is not behind"

    buckets = mirror[FLOW].lag.latency(since="1h", bucket="1h").collect()
    assert sum(row.records for row in buckets) == 30
    runs = mirror.lake.meta(OFFSET_MAP).select("first_upstream", "last_upstream", "committed_at").collect()
    slowest = max(
        milliseconds(run.committed_at) - stamps[offset]
        for run in runs
        for offset in range(run.first_upstream, run.last_upstream + 1)
    )
    assert max(row.max_ms for row in buckets) == slowest
    [then] = mirror.lag.at(billing, second.observed_at).collect()
    assert (then.position, then.cluster, then.end_position) == (5, "east", 30)
    assert mirror.lake.meta(GAPS).count() == 0, "law E: samples do not touch the accounts of landing"


def assert_status_says_what_lag_says(mirror: Any, topic: str) -> None:
    """Compare both answers on a clock that stands still: the same moment, the same numbers."""
    clock, now = mirror._context.now, datetime.now(timezone.utc)
    mirror._context.now = lambda: now
    told = {(row.topic, row.partition): row for row in mirror.status()[FLOW]}
    rows = [row for row in mirror[FLOW].lag.now().collect() if row.topic == topic]
    mirror._context.now = clock
    for hop in ("landed", "republished"):
        [row] = [row for row in rows if row.hop == hop]
        status = told[topic, row.partition]
        assert (row.position, row.end_position) == (getattr(status, hop), status.source_end)
    assert (row.offset_lag, row.time_lag_ms) == (status.offset_lag, status.time_lag_ms)


def changed(mirror: Any, at: datetime) -> list[Any]:
    return mirror.lake.meta(POSITIONS).where(F.col("observed_at") == F.lit(at)).collect()


def test_a_cluster_that_does_not_answer_is_told_and_waited_for_once(
    central: KafkaCluster, east: KafkaCluster, make_mirror: MakeMirror
) -> None:
    topic = new_topic(east, 3, partitions=1)
    away: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1")
    flows = [{"source": source, "target": "central", "topics": topic} for source in ("east", "west")]
    context = make_mirror({"east": east, "west": away, "central": central}, flows)._context
    sampler = context.shared(Monitor).sampler()
    first = sampler.once()
    assert [(look.subject, look.name) for look in first.unanswered] == [("cluster", "west")]
    assert "west" in (first.unanswered[0].error or "")
    second = sampler.once()
    [west] = second.unanswered
    assert west.took_ms == 0, "it is asked beside the others, which do not wait for it"
    assert second.changed == 0
    remembered = load_last_samples(context.lake).positions
    assert ("cluster", "west") not in remembered
    assert {key.topic for key in remembered["cluster", "east"] if key.kind == "last_stable"} == {topic}
