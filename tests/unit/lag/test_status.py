"""Status from one look: what it tells of lives of topics, pauses and records that a rule withheld; without brokers and Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mirrorlake.lag import sampler as sampler_module
from mirrorlake.lag import source_reader
from mirrorlake.lag import status_reader as status_module
from mirrorlake.lag.partition_status import PartitionStatus, compute_rates, judge_partition
from mirrorlake.lag.sampler import Sampler
from mirrorlake.lag.status import Status
from mirrorlake.lag.status_reader import Windows, read_status
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.lag.verdict import Verdict

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.side_files import delete_rows
from mirrorlake.lake.table_maintenance import TableMaintenance
from mirrorlake.model.control import NOTHING_ASKED, ControlState, Pause, Subject
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.remotes import LostTopic
from tests.builders import NOON, ORDERS, ledger_record, mirror_config, sample
from tests.kit.lake import LakeBuilder
from tests.kit.memory_cluster import MemoryCluster
from tests.unit.lag.kit import at, landed

[FLOW] = mirror_config({"target": "central", "topics": ["orders", "clicks"]}).flows
CLICKS = SourcePartition("clicks", 1, 0)
NOON_MS = 1000 * int(NOON.timestamp())


class Cluster(MemoryCluster):
    """A source with one partition a topic; of what is not landed it holds records at some offsets."""

    def __init__(
        self, orders: int, clicks: int = 0, *, life: str = "orders", unlanded: Any = MappingProxyType({})
    ) -> None:
        super().__init__(orders=(0, orders), clicks=(0, clicks))
        self.topics["orders"].topic_id, self.topics["clicks"].topic_id = life, "clicks"
        self.unlanded = unlanded

    def read(self, _topic: str, _partition: int, start: int) -> Any:
        ms = self.unlanded.get(start)
        return iter(() if ms is None else [SimpleNamespace(timestamp_ms=ms)])


@pytest.fixture
def lake(built: LakeBuilder) -> Lake:
    """Ten records of `orders` are landed, a second apart; a rule withheld 8 and 9."""
    built.turn(landed({n: at(n) for n in range(10)}, topic="orders")).observe("orders").observe("clicks")
    return built.withhold(8, 9).lake


Asked = Callable[..., Status]


@pytest.fixture
def status(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Ask for the status where the flow has sent `orders` up to an offset."""

    def ask(
        source: Any,
        sent: int | None,
        state: ControlState = NOTHING_ASKED,
        held: Sequence[LostTopic] = (),
        **more: Any,
    ) -> Status:
        last = ledger_record(positions={} if sent is None else {ORDERS: sent})
        monkeypatch.setattr(sampler_module, "read_last_records", lambda *_: {0: last})
        monkeypatch.setattr(status_module, "inspect_remote_topics", lambda *_: (list(held), {}))
        # A minute after noon.
        known: Any = {"config": SimpleNamespace(lake_clusters=()), "now": lambda: at(60)}
        context: Any = SimpleNamespace(lake=lake, source=lambda _: source, admin=lambda _: source, **known)
        moment = Sampler(context, [FLOW]).read_positions()
        reads: Any = {"target": lambda _: source, "readers": lambda _: nullcontext(source)}
        return read_status([FLOW], moment, lake=lake, state=state, **reads, **more)

    return ask


@pytest.mark.law("E")
def test_law_e_a_topic_of_which_nothing_was_sent_waits_for_a_remote_topic_that_is_held(status: Asked) -> None:
    # As where clicks begins to go into a merged topic that was lost.
    lost = LostTopic(flow=FLOW.name, target="central", remote="east.clicks", topics=("other",), known="1")
    found = status(Cluster(10, 4), 10, held=[lost])[FLOW.name]
    assert [one.topics for one in found.held] == [("clicks", "other")]
    assert {row.topic: row.state for row in found.partitions} == {"clicks": "topic_lost", "orders": "caught_up"}


def told(row: PartitionStatus) -> tuple[Any, ...]:
    return row.source_end, row.landed, row.republished, row.offset_lag, row.time_lag_ms, row.state


def test_a_record_that_a_rule_withheld_does_not_wait_and_one_that_is_not_landed_is_read(status: Asked) -> None:
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

    monkeypatch.setattr(source_reader, "read_landing_positions", read_to)
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


LANDED = Cluster(10)


def samples(*positions: int, end: int = 10) -> list[LagSample]:
    """Return looks a ten seconds apart, the last ten seconds before the one of the test."""
    begin = 60 - 10 * len(positions)
    return [sample(at(begin + 10 * n), position, end, lag_ms=1) for n, position in enumerate(positions)]


YOUNG = "1 of at least 3 samples since 2026-01-01 12:01:00 UTC, and 5 records wait"


@pytest.mark.parametrize(
    ("window", "verdict", "reason", "rates", "eta_ms"),
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
    rates: tuple[float | None, float | None],
    eta_ms: int | None,
) -> None:
    held = {(FLOW.name, ORDERS): window, (FLOW.name, CLICKS): samples(0, 0, 0, end=0)}
    found = status(LANDED, 5, windows=lambda: held)[FLOW.name]
    rest, row = found
    assert (rest.verdict, rest.reason, rest.in_per_s, rest.out_per_s) == ("OK", "nothing waits", 0.0, 0.0)
    assert (row.verdict, (row.in_per_s, row.out_per_s), row.eta_ms) == (verdict, rates, eta_ms)
    assert reason in row.reason
    assert (found.verdict, found.state) == (verdict, "behind")


def test_what_nobody_samples_any_more_is_unknown_and_does_not_warm_up(built: LakeBuilder, status: Asked) -> None:
    built.sample(NOON)
    found = status(LANDED, 5)[FLOW.name]
    assert (found.verdict, found.since) == ("UNKNOWN", None)
    assert "the last earlier sample is of 2026-01-01 12:00:00 UTC" in found.reason
    window = {(FLOW.name, ORDERS): samples(5)}
    young = status(LANDED, 5, windows=lambda: window)[FLOW.name]
    assert (young.verdict, young.since) == ("WARMING_UP", at(50)), "it is sampled again"


def test_no_sample_is_asked_for_while_nothing_waits(status: Asked) -> None:
    def never() -> Windows:
        raise AssertionError("what this look tells is asked of the lake")

    found = status(LANDED, 8, windows=never)[FLOW.name]
    assert [(row.verdict, row.reason) for row in found] == [("OK", "nothing waits")] * 2


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
    now = at(60)
    fine = judge_partition(samples(10, 10, 10), state=state, known_reason="it is so", now=at(50))
    assert (fine.verdict, fine.reason) == (verdict, "it is so" if state == "blocked" else "it is so; nothing waits")
    back = judge_partition([*samples(2, 8, 9, 5, 5)], state=state, now=now)
    worse = Verdict.PAUSED if state == "paused" else Verdict.REWIND
    assert back.verdict is worse, "the samples say worse, but of what a person wanted"


def test_a_log_that_went_back_has_no_rate() -> None:
    shorter = [*samples(9, 9, end=10), *samples(4, end=4)]
    assert compute_rates(sorted(shorter, key=lambda one: one.observed_at)).in_per_s is None
