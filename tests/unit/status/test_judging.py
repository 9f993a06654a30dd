"""Status and verdicts from one look: what it tells of lives of topics, pauses, and records that a rule withheld; without brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from datetime import timedelta
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from mirrorlake.errors import ClusterUnreachable, MirrorlakeError, NotAuthorized
from mirrorlake.lake import Lake
from mirrorlake.lake.side_files import delete_rows
from mirrorlake.lake.table_maintenance import TableMaintenance
from mirrorlake.model.control import NOTHING_ASKED, ControlState, Pause, Subject
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ledger import merged_positions
from mirrorlake.model.remotes import LostTopic
from mirrorlake.status import judging, sources
from mirrorlake.status import snapshot as snapshot_module
from mirrorlake.status.history import Windows, windows_of
from mirrorlake.status.hops import LagVerdict
from mirrorlake.status.judging import SnapshotJudge, judge_objectives, judge_state, measured_rto, read_retention
from mirrorlake.status.polling import UnreachableClusters
from mirrorlake.status.snapshot import Sampler
from mirrorlake.status.status import FlowStatus, PartitionStatus, Status
from mirrorlake.status.verdict import LagSample, Verdict, judge, rates
from tests.builders import NOON, ORDERS, hop_place, judged, judging_context, ledger_record, mirror_config, sample
from tests.kit.lake import LakeBuilder, at, landed
from tests.kit.memory_cluster import MemoryCluster

[FLOW] = mirror_config({"target": "central", "topics": ["orders", "clicks"]}).flows
CLICKS = SourcePartition("clicks", 1, 0)
NOON_MS = 1000 * int(NOON.timestamp())
HOUR_MS = 3_600_000


class Cluster(MemoryCluster):
    """A source with one partition a topic; of what is not landed it holds records at some offsets."""

    def __init__(
        self, orders: int, clicks: int = 0, *, life: str = "orders", unlanded: Any = MappingProxyType({})
    ) -> None:
        super().__init__(orders=(0, orders), clicks=(0, clicks), __consumer_offsets=(0, 0))
        self.topics["orders"].topic_id, self.topics["clicks"].topic_id = life, "clicks"
        self.unlanded = unlanded

    def read(self, _topic: str, _partition: int, start: int) -> Any:
        ms = self.unlanded.get(start)
        return iter(() if ms is None else [SimpleNamespace(timestamp_ms=ms)])


@pytest.fixture
def lake(built: LakeBuilder) -> Lake:
    """Ten records of `orders` are landed, a second apart; a rule withheld 8 and 9."""
    built.turn(landed({n: at(n) for n in range(10)}, topic="orders")).observe("orders").observe("clicks")
    found: Lake = built.withhold(8, 9).lake
    return found


Asked = Callable[..., Status]


@pytest.fixture
def status(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Ask for the status where the flow has sent `orders` up to an offset."""

    def ask(
        source: Any,
        sent: int | None,
        state: ControlState = NOTHING_ASKED,
        held: Sequence[LostTopic] = (),
        retention_ms: int | None = None,
        read_windows: Any = lambda _: {},
    ) -> Status:
        last = ledger_record(positions={} if sent is None else {ORDERS: sent})
        known_sent = merged_positions({0: last}, FLOW.remote_topic)
        monkeypatch.setattr(snapshot_module, "read_sent_positions", lambda *_: known_sent)
        monkeypatch.setattr(judging, "inspect_remote_topics", lambda *_: (list(held), {}))
        context = judging_context(retention_ms, state, lake)
        source.effective_configs_each = context.admin("east").effective_configs_each
        # A minute after noon.
        known: Any = {"now": lambda: at(60), "reader": lambda *_, **__: nullcontext(source)}
        vars(context).update(known, source=lambda _: source, admin=lambda _: source)
        look = Sampler(context, [FLOW], UnreachableClusters(context)).read()
        return SnapshotJudge(context, [FLOW], look, dict(look.hops([FLOW])), read_windows).judge().status

    return ask


def told(row: PartitionStatus) -> tuple[Any, ...]:
    return row.source_end, row.landed, row.republished, row.offset_lag, row.time_lag_ms, row.state


@pytest.mark.law("E")
def test_law_e_a_topic_of_which_nothing_was_sent_waits_for_a_remote_topic_that_is_held(status: Asked) -> None:
    # As where clicks begins to go into a merged topic that was lost.
    lost = LostTopic(flow=FLOW.name, target="central", remote="east.clicks", topics=("other",), known="1")
    found = status(Cluster(10, 4), 10, held=[lost])[FLOW.name]
    assert [one.topics for one in found.held] == [("clicks", "other")]
    assert {row.topic: row.state for row in found.partitions} == {"clicks": "topic_lost", "orders": "caught_up"}


@pytest.mark.law("E")
def test_law_e_a_record_that_a_rule_withheld_does_not_wait_and_one_that_is_not_landed_is_read(status: Asked) -> None:
    landed = Cluster(10)
    clicks, orders = status(landed, 5)[FLOW.name]
    assert told(clicks) == (0, 0, 0, 0, 0, "caught_up")
    assert told(orders) == (10, 10, 5, 5, 55_000, "behind")
    [_, filtered] = status(landed, 8)[FLOW.name]
    assert told(filtered) == (10, 10, 8, 2, 0, "behind"), "nobody waits for 8 and 9"

    ahead = Cluster(12, 3, unlanded={10: NOON_MS})
    found = status(ahead, 8)
    clicks, orders = found[FLOW.name]
    assert told(orders) == (12, 10, 8, 4, 60_000, "behind"), "10 is the oldest that waits, and stands on the source"
    assert told(clicks) == (3, 0, 0, 3, 0, "not_started"), "nothing but markers"
    assert (found.offset_lag, found.time_lag_ms) == (7, 60_000)


@pytest.mark.law("H")
def test_law_h_a_source_that_nobody_ever_consumed_from_is_not_read(status: Asked) -> None:
    untouched = Cluster(12, unlanded={10: NOON_MS})
    del untouched.topics["__consumer_offsets"]
    [_, orders] = status(untouched, 10)[FLOW.name]
    assert told(orders)[3:] == (2, None, "behind"), "a reader would make its broker create the topic of groups"


@pytest.mark.law("E")
def test_nobody_waits_for_what_left_the_relay_before_it_was_sent(built: LakeBuilder, lake: Lake, status: Asked) -> None:
    landed = Cluster(10)

    def leave(first: int, last: int) -> None:
        relay = TableMaintenance(lake.relay_location("east"))
        delete_rows(relay, lambda rows: np.isin(rows["offset"].to_numpy(), range(first, last + 1)), why="erase")

    leave(0, 3)
    assert told(status(landed, None)[FLOW.name][1])[2:4] == (4, 6), "it begins with what is left"
    built.position("landed", 10)
    leave(8, 9)
    assert told(status(landed, 8)[FLOW.name][1]) == (10, 10, 10, 0, 0, "caught_up")
    assert told(status(landed, 7)[FLOW.name][1])[2:4] == (7, 3), "7 waits"


@pytest.mark.law("E")
def test_law_e_what_is_landed_during_the_look_is_not_republished_by_it(
    built: LakeBuilder, status: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_to(*_: Any) -> dict[TopicPartition, int]:
        built.turn(landed({10: NOON, 11: NOON}, topic="orders"))
        # The relay is written first, and then the checkpoint location.
        return {TopicPartition("orders", 0): 12}

    monkeypatch.setattr(sources, "read_landing_positions", read_to)
    [_, orders] = status(Cluster(12), 10)[FLOW.name]
    assert told(orders)[:4] == (12, 12, 10, 2), "no marker stands at the end, as the relay tells"


def test_a_recreated_topic_waits_from_its_beginning(status: Asked) -> None:
    source = Cluster(4, life="another", unlanded={0: NOON_MS})
    [_, orders] = status(source, 10)[FLOW.name]
    assert told(orders) == (4, 0, 0, 4, 60_000, "not_started"), "what was landed is of another life"


def test_a_pause_is_named_and_what_is_unknown_makes_the_total_unknown(status: Asked) -> None:
    class Silent(Cluster):
        def read(self, *_: Any) -> Any:
            raise ClusterUnreachable("east is away", consequence="", remedy="", alias="east")

    subject = Subject(kind="topic", name="orders", flow=FLOW.name)
    state = ControlState(pauses={subject: Pause(subject=subject, who="ann", since=NOON, reason="drill")})
    found = status(Silent(10, 3), 5, state)
    assert [row.state for row in found[FLOW.name]] == ["not_started", "paused"]
    assert [row.time_lag_ms for row in found[FLOW.name]] == [None, 55_000]
    assert (found.offset_lag, found.time_lag_ms) == (8, None), "the unknown one may be the largest"


def test_what_is_not_landed_and_nearly_of_age_expires(status: Asked) -> None:
    source = Cluster(12, unlanded={10: NOON_MS - 60_000})
    [_, kept] = status(source, 10, retention_ms=HOUR_MS)[FLOW.name]
    assert (kept.state, kept.expires_in_ms) == ("behind", HOUR_MS - 120_000)
    [_, soon] = status(source, 10, retention_ms=130_000)[FLOW.name]
    assert (soon.state, soon.expires_in_ms, soon.verdict) == ("expiring", 10_000, "WARNING")
    [_, landed] = status(Cluster(10), 5, retention_ms=1)[FLOW.name]
    assert landed.expires_in_ms is None, "the relay has it"


LANDED = Cluster(10)


def samples(*positions: int, end: int = 10) -> list[LagSample]:
    """Return looks ten seconds apart, the last ten seconds before the one of the test."""
    begin = 60 - 10 * len(positions)
    return [sample(at(begin + 10 * n), position, end, lag_ms=1) for n, position in enumerate(positions)]


def recent(**of: list[LagSample]) -> Callable[..., Windows]:
    """Return the newest samples of a flow's topics."""
    windows = {hop_place("republished", topic=topic): window for topic, window in of.items()}
    length = max(map(len, windows.values()))
    looks = ({place: window[n] for place, window in windows.items() if n < len(window)} for n in range(length))
    found = windows_of([*looks])
    return lambda *_: found


YOUNG = "1 of at least 3 samples since 2026-01-01 12:01:00 UTC, and 5 records wait"


@pytest.mark.parametrize(
    ("window", "verdict", "reason", "per_s", "eta_ms"),
    [
        ([], "WARMING_UP", YOUNG, (None, None), None),
        (samples(5, 5, 5), "STALL", "the position stood at 5 for 30.0 s", (0.0, 0.0), None),
        (samples(2, 3, 4), "OK", "catching up", (0.0, 0.1), 50_000),
        (samples(2, 8, 9), "OK", "catching up", (0.0, 0.1), None),
        (samples(2, 8, 9, 4), "REWIND", "9 to 4", (0.0, 0.075), None),
    ],
)
def test_the_verdict_is_that_of_the_samples_and_of_this_look_as_the_last(
    status: Asked,
    window: list[LagSample],
    verdict: str,
    reason: str,
    per_s: tuple[float | None, float | None],
    eta_ms: int | None,
) -> None:
    held = recent(orders=window, clicks=samples(0, 0, 0, end=0))
    found = status(LANDED, 5, read_windows=held)[FLOW.name]
    rest, row = found
    assert (rest.verdict, rest.reason, rest.in_per_s, rest.out_per_s) == ("OK", "nothing waits", 0.0, 0.0)
    assert (row.verdict, (row.in_per_s, row.out_per_s), row.eta_ms) == (verdict, per_s, eta_ms)
    assert reason in row.reason
    assert (found.verdict, found.state) == (verdict, "behind")


def test_what_nobody_samples_any_more_is_unknown_and_does_not_warm_up(built: LakeBuilder, status: Asked) -> None:
    built.sample(NOON)
    found = status(LANDED, 5)[FLOW.name]
    assert (found.verdict, found.since) == ("UNKNOWN", None)
    assert "the last earlier sample is of 2026-01-01 12:00:00 UTC" in found.reason
    young = status(LANDED, 5, read_windows=recent(orders=samples(5)))[FLOW.name]
    assert (young.verdict, young.since) == ("WARMING_UP", at(50)), "it is sampled again"


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("caught_up", Verdict.OK),
        ("expiring", Verdict.WARNING),
        ("blocked", Verdict.WARNING),
        ("paused", Verdict.PAUSED),
        ("topic_lost", Verdict.STALL),
    ],
)
def test_what_mirrorlake_knows_only_makes_a_verdict_worse(state: str, verdict: Verdict) -> None:
    fine = judge_state(judge(samples(10, 10, 10)), state, "it is so")
    assert (fine.verdict, fine.reason) == (verdict, "it is so" if state == "blocked" else "it is so; nothing waits")
    back = judge_state(judge(samples(2, 8, 9, 5, 5)), state)
    worse = Verdict.PAUSED if state == "paused" else Verdict.REWIND
    assert back.verdict is worse, "the samples say worse, but of what a person wanted"


def test_a_log_that_went_back_has_no_rate() -> None:
    shorter = [*samples(9, 9, end=10), *samples(4, end=4)]
    assert rates(sorted(shorter, key=lambda one: one.observed_at)) == (None, None)


# -- hops ----------------------------------------------------------------------------------------------------------------


def window(positions: Sequence[int], *, end: int) -> list[LagSample]:
    def look(minute: int, position: int) -> LagSample:
        at, waits = NOON + timedelta(minutes=minute), position < end
        since = NOON - timedelta(minutes=1) if waits else None
        return sample(at, position, end, waiting=since, lag_ms=(minute + 1) * 60_000 if waits else 0)

    return [look(minute, position) for minute, position in enumerate(positions)]


def test_the_worst_comes_first_and_counts_for_flow_and_mirror() -> None:
    windows = {
        hop_place("landed"): window([10, 10, 10], end=10),
        hop_place("republished"): window([5, 6, 8], end=10),
        hop_place("consumed", group="billing"): window([3, 3, 3], end=10),
        hop_place("landed", flow="east->west"): window([10, 10, 10], end=10),
        hop_place("republished", flow="east->west", cluster="central"): window([1, 1, 1], end=10),
    }
    found = judged(windows, retention_ms=HOUR_MS)
    assert [hop.verdict for hop in found.hops[:2]] == [Verdict.STALL, Verdict.STALL]
    assert found.flows == {"east->central": Verdict.OK, "east->west": Verdict.STALL}, "a group is no flow"
    assert found.verdict is Verdict.STALL
    assert found.groups == {"billing": Verdict.STALL}
    assert found.at_risk == (), "nor are records at risk that are landed"
    [group] = [hop for hop in found.hops if hop.key.hop == "consumed"]
    assert (group.samples, group.at_risk) == (3, True)
    assert group.as_dict()["retention_risk"] is True
    assert group.as_dict()["retention_left_ms"] == HOUR_MS - 3 * 60_000
    document = json.loads(json.dumps(found.as_dict()))
    assert (document["verdict"], [*document["groups"].values()]) == ("STALL", ["STALL"])
    without_west = judged({place: of for place, of in windows.items() if place.flow == "east->central"})
    assert without_west.is_fine, "an idle group is no trouble of the mirror"


def test_verdicts_of_many_partitions_are_one_page_that_says_why_in_80_columns() -> None:
    still, moves = window([5, 5, 5], end=10), window([10, 10, 10], end=10)
    windows = {
        hop_place(hop, partition=n): still if (n, hop) == (7, "republished") else moves
        for n in range(48)
        for hop in ("landed", "republished")
    }
    found = judged(windows)
    page, every = (one.sheet().text(rows=None, width=80) for one in (found, found.by("partition")))
    assert "1 of 48 partitions, such as 7: the position stood at 5 for 2 min 0 s" in found.sheet().text()
    assert len(page.splitlines()) < 17
    assert sum("landed" in line for line in every.splitlines()) == 48
    assert len(found.by("topic").as_dict()["lag"]) == 96


def test_a_cluster_is_asked_once_how_long_it_keeps_its_topics() -> None:
    asked = []

    class Admin:
        def effective_configs_each(
            self, names: Collection[str], *, refused: dict[str, MirrorlakeError]
        ) -> dict[str, dict[str, str | None]]:
            asked.append(sorted(names))
            refused["t0"] = NotAuthorized("t0 may not be read")
            settings = {"t1": {"retention.ms": "5"}, "t2": {"cleanup.policy": "compact", "retention.ms": "5"}}
            return {name: of for name, of in settings.items() if name in names}

    context: Any = SimpleNamespace(config=mirror_config(), admin=lambda _: Admin())
    places = [("east", "t0"), ("east", "t1"), ("east", "t2")]
    assert read_retention(context, places) == {("east", "t1"): 5, ("east", "t2"): None}
    assert asked == [["t0", "t1", "t2"]]


def test_a_truncated_partition_hides_no_other_one_and_an_early_timestamp_no_window(status: Asked) -> None:
    windows = {
        hop_place("republished", partition=0, generation=2): window([3, 3, 3], end=10),
        hop_place("republished", partition=0): window([3, 3, 3], end=10),
        hop_place("republished", partition=1): window([3, 3, 3], end=10),
    }
    assert {(hop.key.generation, hop.key.partition) for hop in judged(windows).hops} == {(2, 0), (1, 1)}
    led = judged({**windows, hop_place("republished", partition=1): [LagSample(at(0), 3)]}).status[FLOW.name]
    assert (led.verdict, led.time_lag_ms, [str(one) for one in led.leaderless]) == ("STALL", None, ["orders-1"])
    assert (led.topics["orders"].time_lag_ms, led.is_whole) == (None, False), "law E: what is not known is not 0"
    ahead = Cluster(12, unlanded={10: NOON_MS + HOUR_MS})
    [_, row] = status(ahead, 10, read_windows=recent(orders=samples(10, 10, 10, end=12)))[FLOW.name]
    assert (row.time_lag_ms, row.verdict) == (0, "STALL"), "its producer's clock is ahead, and it waits"


def test_at_risk_counts_partitions_not_hops_and_groups_apart() -> None:
    hops = [
        hop_place(hop, group, partition=p) for p in range(8) for hop, group in (("landed", None), ("consumed", "a"))
    ]
    found = judged({each: window([3, 3, 3], end=10) for each in hops}, retention_ms=HOUR_MS)
    assert len(found.at_risk) == 8
    assert "retention overtakes 8 partitions" in str(found)


def test_a_cluster_that_is_away_leaves_no_figure_of_its_hops_and_a_pause_of_landing_is_named() -> None:
    windows = {hop: window([3, 3, 3], end=10) for hop in (hop_place("landed"), hop_place("republished"))}
    away = ClusterUnreachable("east is away", consequence="", remedy="", alias="east")
    found = judged(windows, errors={("cluster", "east"): away})
    assert {(hop.verdict, hop.reason, hop.last.offset_lag) for hop in found.hops} == {
        (Verdict.CLUSTER_AWAY, "east is away", None)
    }
    silent = Mock(side_effect=away)
    judged(windows, admin=silent, read_windows=(asked := Mock(return_value={})))
    assert asked.call_args.args == (None,), "a target that answered for the positions, and no more since"
    subject = Subject(kind="cluster", name="east")
    pause = Pause(subject=subject, who="ann", since=NOON, reason="drill")
    paused = judged(windows, state=ControlState(pauses={subject: pause}))
    assert {hop.key.hop: hop.verdict for hop in paused.hops}["landed"] is Verdict.PAUSED


# -- objectives ----------------------------------------------------------------------------------------------------------


def test_objectives_are_met_missed_or_not_measured(built: LakeBuilder, lake: Lake) -> None:
    flows = mirror_config({"topics": "t", "objectives": {"rpo": "30s", "rto": "5m"}}).flows
    [flow] = flows

    def rto(command: str, document: Any, seconds: float) -> None:
        built.add("audit", at=at(seconds), command=command, flow=flow.name, object="x", who="ann", after=document)

    assert judge_objectives(FLOW, 2_500, None) == ()
    before = judge_objectives(flow, 2_500, measured_rto(lake, flows)[flow.name])
    assert [*map(str, before)] == ["RPO 2.5 s of 30.0 s, met", "RTO not measured of 5 min 0 s"]
    assert [one.met for one in before] == ["met", "unknown"]
    rto("drill", json.dumps({"rto_s": 100, "rpo_s": 1}), 1)
    rto("failover", json.dumps({"rto_s": 400.5}), 2)
    rto("failover", json.dumps({"rto_s": None}), 3)
    rto("failover", "not JSON, rto_s", 4)
    rto("apply", json.dumps({"rto_s": 1}), 5)
    measured = measured_rto(lake, flows)[flow.name]
    assert (measured.measured_s, measured.measured_by) == (400.5, "failover")
    found = judge_objectives(flow, 30_001, measured)
    assert [(one.name, one.met) for one in found] == [("RPO", "missed"), ("RTO", "missed")]
    of_flow = FlowStatus(flow=flow.name, partitions=(), observed_at=NOON, objectives=found)
    verdict = LagVerdict(hops=(), status=Status(flows=(of_flow,), observed_at=NOON))
    assert not verdict.is_fine
    told = verdict.as_dict()["objectives"][flow.name]
    assert [(one["met"], one["measured_by"]) for one in told] == [("missed", None), ("missed", "failover")]
    [silent, _] = judge_objectives(flow, None, measured)
    assert silent.met == "unknown", "what is not known is not met"
