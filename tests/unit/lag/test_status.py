"""Status from one look: what it tells of lives of topics, pauses and records that a rule withheld; without brokers and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mirrorlake.config.loading import loads
from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.topic_metadata import TopicState
from mirrorlake.lag import sampler as sampler_module
from mirrorlake.lag import source_reader
from mirrorlake.lag import status_reader as status_module
from mirrorlake.lag.hanging_transactions import HangingTransaction
from mirrorlake.lag.partition_status import PartitionStatus, compute_rates, judge_partition
from mirrorlake.lag.sampler import Sampler
from mirrorlake.lag.status import Status
from mirrorlake.lag.status_reader import Windows, read_status
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.lag.verdict import Verdict
from mirrorlake.lake import position_row
from mirrorlake.lake.arrow_types import arrow_table
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.metadata import KnownTopic, topic_row
from mirrorlake.lake.schema import METADATA, POSITIONS, RELAY, SAMPLES, SIDE_TABLES, WITHHELD
from mirrorlake.lake.side_files import delete_rows
from mirrorlake.lake.table_maintenance import TableMaintenance
from mirrorlake.model.control import NOTHING_ASKED, ControlState, Pause, Subject
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.parked import Parked
from mirrorlake.model.remotes import LostTopic
from tests.builders import ledger_record
from tests.unit.values import status as flow_status

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
[FLOW] = loads("""
lake: {root: ./lake}
clusters: {east: {bootstrap_servers: "e:1"}, central: {bootstrap_servers: "c:1"}}
flows: [{source: east, target: central, topics: [orders, clicks]}]
""").flows
ORDERS, CLICKS = SourcePartition("orders", 1, 0), SourcePartition("clicks", 1, 0)


@dataclass
class Cluster:
    """A source with one partition a topic: its id and its end."""

    topics: dict[str, tuple[str, int]]
    unlanded: Mapping[int, int] = field(default_factory=dict)

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        return {name: TopicState(name=name, topic_id=self.topics[name][0], partitions=1) for name in names}

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.topics[tp.topic][1] for tp in partitions}

    def read(self, _topic: str, _partition: int, start: int) -> Any:
        ms = self.unlanded.get(start)
        return iter(() if ms is None else [SimpleNamespace(timestamp_ms=ms)])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Ten records of `orders` are landed, a second apart; a rule withheld 8 and 9."""

    def no_session() -> Any:
        raise AssertionError("Spark is not asked")

    lake = Lake(no_session, LakeConfig(root=str(tmp_path)))
    lake._folder.create(lake.relay_location("east"), RELAY)
    for table in SIDE_TABLES:
        lake._folder.create(lake.meta_location(table), table)
    records = [("orders", 1, 0, n, NOON + timedelta(seconds=n), 0, None, None, None, NOON) for n in range(10)]
    lake._folder.append(
        lake.relay_location("east"), arrow_table(RELAY, [dict(zip(RELAY.columns, row, strict=True)) for row in records])
    )
    lake.append_rows(
        METADATA,
        [
            topic_row("east", "source", KnownTopic(name=name, generation=1, topic_id=name, partitions=1), NOON)
            for name in ("orders", "clicks")
        ],
    )
    filtered = (FLOW.name, "orders", 1, 0, 8, 9, [{"first": 8, "length": 2}], 2, "filtered")
    lake.append_rows(WITHHELD, [dict(zip(WITHHELD.columns, filtered, strict=False))])
    return lake


def context_of(lake: Lake, clusters: Mapping[str, Any]) -> Any:
    """Return a context of these clusters, a minute after noon."""
    return SimpleNamespace(
        lake=lake,
        config=SimpleNamespace(lake_clusters=()),
        now=lambda: NOON + timedelta(seconds=60),
        source=clusters.__getitem__,
        admin=clusters.__getitem__,
    )


def status(
    lake: Lake,
    source: Any,
    sent: Mapping[SourcePartition, int],
    monkeypatch: pytest.MonkeyPatch,
    state: ControlState = NOTHING_ASKED,
    windows: Callable[[], Windows] = dict,
    held: Sequence[LostTopic] = (),
    inspect_remote_topics: Callable[..., Any] | None = None,
    **more: Any,
) -> Status:
    last = ledger_record(positions=dict(sent))
    monkeypatch.setattr(sampler_module, "read_last_records", lambda *_: {0: last})
    monkeypatch.setattr(status_module, "inspect_remote_topics", inspect_remote_topics or (lambda *_: (list(held), {})))
    moment = Sampler(context_of(lake, {"east": source, "central": source}), [FLOW]).read_positions()
    return read_status(
        [FLOW],
        moment,
        lake=lake,
        target=lambda _: source,
        readers=lambda _: nullcontext(source),
        state=state,
        windows=windows,
        **more,
    )


@pytest.mark.law("E")
def test_law_e_a_topic_of_which_nothing_was_sent_waits_for_a_remote_topic_that_is_held(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where clicks begins to go into a merged topic that was lost.
    lost = LostTopic(flow=FLOW.name, target="central", remote="east.clicks", topics=("other",), known="1")
    source = Cluster({"orders": ("orders", 10), "clicks": ("clicks", 4)})
    found = status(lake, source, {ORDERS: 10}, monkeypatch, held=[lost])[FLOW.name]
    assert [one.topics for one in found.held] == [("clicks", "other")]
    assert {row.topic: row.state for row in found.partitions} == {"clicks": "topic_lost", "orders": "caught_up"}


def told(row: PartitionStatus) -> tuple[Any, ...]:
    return row.source_end, row.landed, row.republished, row.offset_lag, row.time_lag_ms, row.state


def test_a_record_that_a_rule_withheld_does_not_wait_and_one_that_is_not_landed_is_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = Cluster({"orders": ("orders", 10), "clicks": ("clicks", 0)})
    clicks, orders = status(lake, landed, {ORDERS: 5}, monkeypatch)[FLOW.name]
    assert told(clicks) == (0, 0, 0, 0, 0, "caught_up")
    assert told(orders) == (10, 10, 5, 5, 55_000, "behind")
    [_, filtered] = status(lake, landed, {ORDERS: 8}, monkeypatch)[FLOW.name]
    assert told(filtered) == (10, 10, 8, 2, 0, "behind"), "nobody waits for 8 and 9"

    ahead = Cluster({"orders": ("orders", 12), "clicks": ("clicks", 3)}, unlanded={10: 1000 * int(NOON.timestamp())})
    found = status(lake, ahead, {ORDERS: 8}, monkeypatch)
    clicks, orders = found[FLOW.name]
    assert told(orders) == (12, 10, 8, 4, 60_000, "behind"), "10 is the oldest that waits, and stands on the source"
    assert told(clicks) == (3, 0, 0, 3, 0, "not_started"), "nothing but markers"
    assert (found.offset_lag, found.time_lag_ms) == (7, 60_000)


@pytest.mark.law("E")
def test_nobody_waits_for_what_left_the_relay_before_it_was_sent(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    landed = Cluster({"orders": ("orders", 10), "clicks": ("clicks", 0)})

    def leave(first: int, last: int) -> None:
        relay = TableMaintenance(lake.relay_location("east"))
        delete_rows(relay, lambda rows: np.isin(rows["offset"].to_numpy(), range(first, last + 1)), why="erase")

    leave(0, 3)
    assert told(status(lake, landed, {}, monkeypatch)[FLOW.name][1])[2:4] == (4, 6), "it begins with what is left"
    lake.append_rows(POSITIONS, [position_row("east", ORDERS, "landed", 10, NOON)])
    leave(8, 9)
    assert told(status(lake, landed, {ORDERS: 8}, monkeypatch)[FLOW.name][1]) == (10, 10, 10, 0, 0, "caught_up")
    assert told(status(lake, landed, {ORDERS: 7}, monkeypatch)[FLOW.name][1])[2:4] == (7, 3), "7 waits"


@pytest.mark.law("E")
def test_law_e_what_is_landed_during_the_look_is_not_republished_by_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_to(*_: Any) -> dict[TopicPartition, int]:
        place = {"topic": "orders", "generation": 1, "partition": 0, "timestamp_type": 0, "landed_at": NOON}
        rows = [{**place, "offset": n, "timestamp": NOON} for n in (10, 11)]
        lake._folder.append(lake.relay_location("east"), arrow_table(RELAY, rows))
        # The relay is written first, and then the checkpoint location.
        return {TopicPartition("orders", 0): 12}

    monkeypatch.setattr(source_reader, "read_landing_positions", read_to)
    source = Cluster({"orders": ("orders", 12), "clicks": ("clicks", 0)})
    [_, orders] = status(lake, source, {ORDERS: 10}, monkeypatch)[FLOW.name]
    assert told(orders)[:4] == (12, 12, 10, 2), "no marker stands at the end, as the relay tells"


def test_a_recreated_topic_waits_from_its_beginning(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Cluster({"orders": ("another", 4), "clicks": ("clicks", 0)}, unlanded={0: 1000 * int(NOON.timestamp())})
    [_, orders] = status(lake, source, {ORDERS: 10}, monkeypatch)[FLOW.name]
    assert told(orders) == (4, 0, 0, 4, 60_000, "not_started"), "what was landed is of another life"


def test_a_pause_is_named_and_what_is_unknown_makes_the_total_unknown(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(Cluster):
        def read(self, *_: Any) -> Any:
            raise ClusterUnreachable("east is away", consequence="", remedy="", alias="east")

    subject = Subject(kind="topic", name="orders", flow=FLOW.name)
    state = ControlState(pauses={subject: Pause(subject=subject, who="ann", since=NOON, reason="drill")})
    source = Silent({"orders": ("orders", 10), "clicks": ("clicks", 3)})
    found = status(lake, source, {ORDERS: 5}, monkeypatch, state)
    assert [row.state for row in found[FLOW.name]] == ["not_started", "paused"]
    assert [row.time_lag_ms for row in found[FLOW.name]] == [None, 55_000]
    assert (found.offset_lag, found.time_lag_ms) == (8, None), "the unknown one may be the largest"


def test_a_cluster_that_is_away_hides_its_own_flows_only(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(Cluster):
        def topic_names(self) -> list[str]:
            raise ClusterUnreachable("west is away")

        def broker_count(self) -> int:
            raise ClusterUnreachable("west is away")

    monkeypatch.setattr(sampler_module, "read_last_records", lambda *_: {0: ledger_record(positions={ORDERS: 10})})
    monkeypatch.setattr(status_module, "inspect_remote_topics", lambda *_: ([], {}))
    east, west = Cluster({"orders": ("orders", 12)}), Away({})
    flows = [FLOW.model_copy(update={"source": "west", "name": "west->central"}), FLOW]
    look = Sampler(context_of(lake, {"east": east, "west": west, "central": east}), flows)

    def asked(*those: Any) -> Status:
        return read_status(
            those,
            look.read_positions(),
            lake=lake,
            target=lambda _: east,  # type: ignore[arg-type,return-value]
            readers=lambda _: nullcontext(east),  # type: ignore[arg-type,return-value]
            state=NOTHING_ASKED,
        )

    for _ in range(2):
        found = asked(*flows)
        gone, there = found["west->central"], found[FLOW.name]
        assert (gone.unknown, gone.verdict, gone.state, gone.time_lag_ms) == (
            "west is away",
            "CLUSTER_AWAY",
            "unknown",
            None,
        )
        assert [row.source_end for row in there] == [12]
        assert (found.is_whole, there.is_whole) == (False, True)
        assert (found.offset_lag, found.time_lag_ms) == (2, None), "the unknown one may be the largest"
        assert "west is away" in str(found), "asked again in the background, and still named"
        alone = asked(flows[0])
        assert (alone.verdict, alone.is_whole, "west is away" in str(alone)) == ("CLUSTER_AWAY", False, True)


def test_a_flow_whose_target_goes_away_during_the_look_is_unknown_since_its_last_answer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> Any:
        raise ClusterUnreachable("central is away", alias="central")

    subject = Subject(kind="flow", name=FLOW.name)
    state = ControlState(pauses={subject: Pause(subject=subject, who="ann", since=NOON)})
    answered = {
        "observed_at": NOON,
        "subject": "flow",
        "name": FLOW.name,
        "complete": True,
        "took_ms": 1,
        "error": None,
    }
    lake.append_rows(SAMPLES, [answered])
    found = status(lake, LANDED, {ORDERS: 5}, monkeypatch, state, inspect_remote_topics=gone)[FLOW.name]
    assert (found.verdict, found.away, found.answered_at, found.since) == ("CLUSTER_AWAY", "central", NOON, NOON)
    assert "is paused by ann" in found.reason
    assert "central is away; its last answer was at 2026-01-01 12:00:00 UTC" in found.reason


LANDED = Cluster({"orders": ("orders", 10), "clicks": ("clicks", 0)})


def samples(*positions: int, end: int = 10) -> list[LagSample]:
    """Return looks a ten seconds apart, the last ten seconds before the one of the test."""
    begin = NOON + timedelta(seconds=60 - 10 * len(positions))
    return [
        LagSample(
            observed_at=begin + timedelta(seconds=10 * n),
            position=at,
            end_position=end,
            offset_lag=end - at,
            time_lag_ms=1,
        )
        for n, at in enumerate(positions)
    ]


@pytest.mark.parametrize(
    ("window", "verdict", "reason", "rates", "eta_ms"),
    [
        (
            [],
            "WARMING_UP",
            "1 of at least 3 samples since 2026-01-01 12:01:00 UTC, and 5 records wait",
            (None, None),
            None,
        ),
        (samples(5, 5, 5), "STALL", "the position stood at 5 for 30.0 s", (0.0, 0.0), None),
        (samples(2, 3, 4), "OK", "catching up", (0.0, 0.1), 50_000),
        (samples(2, 8, 9), "OK", "catching up", (0.0, 0.1), None),
        (samples(2, 8, 9, 4), "REWIND", "9 to 4", (0.0, 0.075), None),
    ],
)
def test_the_verdict_is_that_of_the_samples_and_of_this_look_as_the_last(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    window: list[LagSample],
    verdict: str,
    reason: str,
    rates: tuple[float | None, float | None],
    eta_ms: int | None,
) -> None:
    held = {(FLOW.name, ORDERS): window, (FLOW.name, CLICKS): samples(0, 0, 0, end=0)}
    found = status(lake, LANDED, {ORDERS: 5}, monkeypatch, windows=lambda: held)[FLOW.name]
    rest, row = found
    assert (rest.verdict, rest.reason, rest.in_per_s, rest.out_per_s) == ("OK", "nothing waits", 0.0, 0.0)
    assert (row.verdict, (row.in_per_s, row.out_per_s), row.eta_ms) == (verdict, rates, eta_ms)
    assert reason in row.reason
    assert (found.verdict, found.state) == (verdict, "behind")


def test_what_nobody_samples_any_more_is_unknown_and_does_not_warm_up(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = {"observed_at": NOON, "subject": "flow", "name": FLOW.name, "complete": True, "took_ms": 1, "error": None}
    lake.append_rows(SAMPLES, [once])
    found = status(lake, LANDED, {ORDERS: 5}, monkeypatch)[FLOW.name]
    assert (found.verdict, found.since) == ("UNKNOWN", None)
    assert "the last earlier sample is of 2026-01-01 12:00:00 UTC" in found.reason
    sampled = {(FLOW.name, ORDERS): samples(5)}
    young = status(lake, LANDED, {ORDERS: 5}, monkeypatch, windows=lambda: sampled)[FLOW.name]
    assert (young.verdict, young.since) == ("WARMING_UP", NOON + timedelta(seconds=50)), "it is sampled again"


def test_no_sample_is_asked_for_while_nothing_waits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> Windows:
        raise AssertionError("what this look tells is asked of the lake")

    found = status(lake, LANDED, {ORDERS: 8}, monkeypatch, windows=never)[FLOW.name]
    assert [(row.verdict, row.reason) for row in found] == [("OK", "nothing waits")] * 2


def test_a_pause_explains_a_verdict_and_a_lost_topic_makes_it_worse(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(subject=Subject(kind="flow", name=FLOW.name), who="ada", since=NOON, reason="a backup")
    state = ControlState(pauses={pause.subject: pause})
    row = status(lake, LANDED, {ORDERS: 5}, monkeypatch, state, lambda: {(FLOW.name, ORDERS): samples(5, 5, 5)})[
        FLOW.name
    ][1]
    assert (row.verdict, row.state, row.since) == ("PAUSED", "paused", NOON)
    assert "is paused by ada" in row.reason
    assert "the position stood at 5" in row.reason


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("caught_up", Verdict.OK),
        ("expiring", Verdict.WARNING),
        ("blocked", Verdict.WARNING),
        ("parked", Verdict.STOP),
        ("paused", Verdict.PAUSED),
        ("topic_lost", Verdict.STALL),
    ],
)
def test_what_mirrorlake_knows_only_makes_a_verdict_worse(state: str, verdict: Verdict) -> None:
    now = NOON + timedelta(seconds=60)
    fine = judge_partition(samples(10, 10, 10), state=state, known_reason="it is so", now=NOON + timedelta(seconds=50))
    assert (fine.verdict, fine.reason) == (verdict, "it is so; nothing waits")
    back = judge_partition([*samples(2, 8, 9, 5, 5)], state=state, now=now)
    worse = Verdict.PAUSED if state == "paused" else Verdict.REWIND
    assert back.verdict is worse, "the samples say worse, but of what a person wanted"


@pytest.mark.law("E")
def test_what_a_hung_transaction_holds_back_is_not_in_step(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    since = int((NOON - timedelta(minutes=12)).timestamp() * 1000)
    hung = {TopicPartition("orders", 0): HangingTransaction(offset=10, since_ms=since, offsets=500)}
    [clicks, orders] = status(lake, LANDED, {ORDERS: 10}, monkeypatch, find_transactions=lambda *_: hung)[FLOW.name]
    assert (clicks.state, clicks.verdict, clicks.blocked_offsets, clicks.blocked_ms) == ("caught_up", "OK", 0, None)
    assert (orders.state, orders.verdict, orders.blocked_offsets) == ("blocked", "WARNING", 500)
    assert orders.blocked_ms == 13 * 60_000
    assert orders.reason.startswith(
        "a transaction of the source is open since 11:48:00 UTC, 13 min 0 s: 500 offsets from 10"
    )

    def silent(*_: object) -> Any:
        raise ClusterUnreachable("east is away", alias="east")

    found = status(lake, LANDED, {ORDERS: 10}, monkeypatch, find_transactions=silent)
    assert found.state == "caught_up", "what else is known is told"


def test_a_log_that_went_back_has_no_rate() -> None:
    shorter = [*samples(9, 9, end=10), *samples(4, end=4)]
    assert compute_rates(sorted(shorter, key=lambda one: one.observed_at)).in_per_s is None


def test_a_parked_stream_stops_its_flow_whatever_its_partitions_say() -> None:
    stream = Parked(stream="f", since=NOON, error="ClusterError", cause="west is away", remedy="wait")
    found = replace(flow_status("f"), parked=(stream,))
    assert (found.verdict, found.state, found.since) == ("STOP", "parked", NOON)
    assert "west is away" in found.reason
    retried = replace(stream, is_retried=True)
    away = replace(found, partitions=(), parked=(retried,), unknown="west is away", away="west")
    assert (away.verdict, away.reason, away.since) == ("CLUSTER_AWAY", "west is away", None), "it waits for its cluster"
    assert replace(away, parked=(stream,)).verdict == "STOP", "it waits for a person"
