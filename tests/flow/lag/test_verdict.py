"""Verdicts and metrics of a real mirror: what stands still is said to, and a running mirror tells its figures."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from mirrorlake.config.loading import load
from mirrorlake.lag.sampler import Sampler
from mirrorlake.lag.verdict import Verdict
from mirrorlake.mirror import Mirror
from mirrorlake.sandbox.ports import free_ports
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import commit
from tests.servers.lakes import Pair

FLOW = "east->central"
ALERTS = yaml.safe_load((Path(__file__).parents[3] / "conf/prometheus/alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
GROUP_LAG = "kafka_consumergroup_group_lag", ""


def served(port: int) -> str:
    """Return what a scrape gets, "" where nothing answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return str(answer.read().decode())
    except (URLError, ConnectionError):
        return ""


def scraped(port: int) -> dict[tuple[str, str], float]:
    """Return the samples of a scrape by name and by what tells them apart: topic, stream or verdict."""
    return {
        (one.name, one.labels.get("hop") or one.labels.get("stream") or one.labels.get("verdict") or ""): one.value
        for family in text_string_to_metric_families(served(port))
        for one in family.samples
        if one.name.startswith(("mirrorlake", "kafka")) and "le" not in one.labels
    }


def test_a_standstill_is_judged_and_measured_until_it_is_made_up_for(pair: Pair, spark: SparkSession) -> None:
    pair.create(20, partitions=1)
    mirror = pair.mirror(sync={"groups": False})
    mirror.run(once=True)
    group = f"audit-{pair.topic}"
    commit(pair.central, group, pair.remote, {0: 8})
    pair.produce(10, seed=2)

    # As if somebody had looked every 5 minutes up to now: silence counts by the window's span, and until the verdicts are asked
    # for, these looks and others take their time.
    begun = datetime.now(timezone.utc)
    for age_s in (900, 600, 300, 0):
        at = begun - timedelta(seconds=age_s)
        Sampler(mirror._context, now=lambda at=at: at).once()
    found = mirror[FLOW].lag.verdict()
    hops = {(hop.key.hop, hop.key.group_id): hop for hop in found.hops}
    assert {key: hop.verdict for key, hop in hops.items()} == {
        ("landed", None): Verdict.STALL,
        ("republished", None): Verdict.STALL,
        ("consumed", group): Verdict.STALL,
    }
    assert [hops["landed", None].samples, hops["landed", None].last.offset_lag] == [5, 10], "the status looks, too"
    risk = hops["consumed", group].retention
    assert risk is not None
    assert risk.at_risk
    assert risk.soonest_ms is not None
    assert 0 < 7 * 86_400_000 - risk.soonest_ms < 3_600_000, "the broker keeps a topic for seven days"

    conf = Path(pair.conf)
    settings, port = json.loads(conf.read_text()), free_ports(1)[0]
    settings |= {"metrics": {"port": port, "every": "5s"}, "sampling": {"every": "2s"}}
    conf.write_text(json.dumps(settings))
    mirror = Mirror(load(conf), spark=spark)
    with staying_on(mirror) as failures:

        def has_made_up() -> dict[tuple[str, str], float]:
            assert not failures
            series = scraped(port)
            # A long-lived task's records are counted with the accounts, every five seconds; and each cluster has its own
            # moment in a look, so the group's lag may be one look older than the flow's.
            counted = [series.get((f"mirrorlake_{step}_records_total", ""), 0) for step in ("landed", "republished")]
            lags = series.get(("mirrorlake_offset_lag", "republished")), series.get(GROUP_LAG)
            return series if lags == (0, 22) and min(counted) >= 10 else {}

        series = wait_until(has_made_up, "the figures of a mirror that has caught up")
        text = served(port)
    assert series["mirrorlake_landed_records_total", ""] == 10
    assert series["mirrorlake_republished_records_total", ""] == 10
    assert series["mirrorlake_position", "landed"] == series["kafka_partition_latest_offset", ""] == 30
    assert series["mirrorlake_last_success_timestamp_seconds", "land east"] > 0
    assert series["mirrorlake_last_success_timestamp_seconds", f"republish {FLOW}"] > 0
    assert series["mirrorlake_metrics_failures_total", ""] == 0
    assert series["kafka_consumergroup_group_verdict", ""] == Verdict.STALL, "the group still stands still"
    assert series["mirrorlake_verdict", "OK"] == 1, "which is no trouble of the flow"
    for rule in RULES:
        for name in re.findall(r"(?:mirrorlake|kafka)_\w+", rule["expr"]):
            assert f"# TYPE {name} " in text, rule["alert"]
    # A rule sees the first event only where its series begins at 0.
    for kind in ("expired", "truncated", "recreated"):
        assert f'mirrorlake_gap_offsets{{kind="{kind}",source="east"}} 0.0' in text
    assert f'mirrorlake_withheld_records{{flow="{FLOW}",kind="quarantined"}} 0.0' in text
    assert not scraped(port), "the port is free when the mirror has ended"
