"""What lag means: verdicts by Burrow's rules, catch-up, retention risk; all pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.status.verdict import NEVER, LagSample, Total, Verdict, catch_up, judge, retention_risk, sum_lags, worst
from tests.builders import NOON, sample
from tests.kit.lake import at

HOUR_MS = 3_600_000


def looks(
    positions: Sequence[int], lags: Sequence[int | None], *, every_s: float = 100, waiting_since: datetime | None = None
) -> list[LagSample]:
    return [
        sample(
            at(100 + index * every_s),
            position,
            None if lag is None else position + lag,
            waiting=waiting_since if lag else None,
            lag_ms=0 if lag == 0 else None,
        )
        for index, (position, lag) in enumerate(zip(positions, lags, strict=True))
    ]


MOVES = [1000, 2000, 3000, 4000, 5000]
STANDS = [1000] * 5

# name, positions, lags, verdict
HISTORIES: list[tuple[str, list[int], list[int | None], Verdict]] = [
    ("a spike: nothing waited at the start", MOVES, [0, 50, 100, 150, 200], Verdict.OK),
    ("stands still since a moment without lag", STANDS, [0, 50, 100, 150, 200], Verdict.OK),
    ("stands still, always behind", STANDS, [100, 150, 200, 250, 300], Verdict.STALL),
    ("stands still, the lag does, too", STANDS, [100] * 5, Verdict.STALL),
    ("went back and came back", [1000, 2000, 3000, 2000, 4000], [100, 150, 200, 1250, 300], Verdict.OK),
    (
        "went back and stays back",
        [1000, 2000, 3000, 500, 900],
        [100, 150, 200, 2800, 2500],
        Verdict.REWIND,
    ),
    ("went back at the last look only", [1000, 2000, 3000, 4000, 3900], [50, 40, 30, 20, 200], Verdict.OK),
    ("went back although nothing waited before", [10, 20, 30, 0, 1], [0, 0, 0, 30, 29], Verdict.REWIND),
    ("went back, came back, and went back for good", [10, 5, 12, 3, 4], [10, 15, 8, 17, 16], Verdict.REWIND),
    ("looks without a known end change nothing", MOVES, [0, None, 100, None, 200], Verdict.OK),
    ("moves, and the lag grows", MOVES, [50, 100, 150, 200, 250], Verdict.WARNING),
    ("moves, and the lag stays", MOVES, [500] * 5, Verdict.WARNING),
    ("moves, and no more waits than passes in 10 s", MOVES, [50, 60, 70, 80, 100], Verdict.OK),
    ("moves, and the lag once became less", MOVES, [500, 400, 450, 500, 550], Verdict.OK),
    ("an idle topic", STANDS, [0] * 5, Verdict.OK),
    ("two looks at records that wait", [1000, 1000], [5, 5], Verdict.WARMING_UP),
    ("the end is not known", MOVES, [5, 5, 5, 5, None], Verdict.UNKNOWN),
]


@pytest.mark.parametrize(
    ("positions", "lags", "verdict"),
    [history[1:] for history in HISTORIES],
    ids=[history[0] for history in HISTORIES],
)
def test_a_history_is_judged_by_rule(positions: list[int], lags: list[int | None], verdict: Verdict) -> None:
    found = judge(looks(positions, lags))
    assert found.verdict is verdict, found.reason
    assert found.reason


@st.composite
def windows(draw: st.DrawFn) -> list[LagSample]:
    steps = draw(
        st.lists(st.tuples(st.integers(-5, 20), st.integers(0, 20), st.integers(1, 60)), min_size=1, max_size=12)
    )
    samples, position, end, now = [], draw(st.integers(10, 50)), draw(st.integers(10, 50)), 0.0
    for moved, produced, pause in steps:
        position, end, now = max(0, position + moved), end + produced, now + pause
        position = min(position, end)
        samples.append(sample(at(now), position, end))
    return samples


@given(windows())
def test_nothing_waiting_now_is_ok_and_a_shift_of_offsets_or_time_changes_no_verdict(window: list[LagSample]) -> None:
    found = judge(window)
    at_rest = [*window[:-1], window[-1]._replace(offset_lag=0)]
    assert judge(at_rest).verdict is Verdict.OK
    day, far = timedelta(days=1), 1_000_000
    moved = [sample(one.observed_at + day, one.position + far, (one.end_position or 0) + far) for one in window]
    assert judge(moved).verdict is found.verdict
    if window[-1].offset_lag and len(window) >= 3:
        assert found.verdict is not Verdict.UNKNOWN
    if found.verdict in (Verdict.STALL, Verdict.WARNING):
        assert all(one.offset_lag for one in window)


@pytest.mark.parametrize(
    ("positions", "age_ms", "verdict"),
    [
        ([50], 9_000, Verdict.OK),
        ([50], 26_000, Verdict.WARNING),
        ([50, 50, 50], 26_000, Verdict.STALL),
        ([60, 70], 26_000, Verdict.OK),
    ],
    ids=["a spike", "one look", "three looks", "it moves"],
)
def test_a_mirror_that_stands_still_since_records_came_is_not_ok(
    positions: list[int], age_ms: int, verdict: Verdict
) -> None:
    at_rest = [sample(at(30 * n), 50, 50) for n in (0, 1)]
    window = at_rest + [sample(at(30 * n), position, 100) for n, position in enumerate(positions, start=2)]
    window[-1] = window[-1]._replace(time_lag_ms=age_ms, waiting_since=NOON)
    assert judge(window).verdict is verdict
    assert judge(window, is_group=True).verdict is Verdict.OK, "a group reads when it likes"
    assert (catch_up(window) == 0) is (age_ms < 10_000)


def test_nobody_waits_for_markers_of_transactions_and_records_that_a_rule_kept_back() -> None:
    window = [sample(at(s), 10, 12, lag_ms=0) for s in (0, 100, 200)]
    assert judge(window).verdict is Verdict.OK
    assert catch_up(window) == 0
    in_future = [one._replace(waiting_since=at(1000)) for one in window]
    assert judge(in_future).verdict is Verdict.STALL, "a timestamp ahead of the clock: its record waits"


def test_the_worst_counts_and_what_is_unknown_hides_nothing() -> None:
    assert worst([Verdict.OK, Verdict.REWIND, Verdict.WARNING]) is Verdict.REWIND
    assert worst([Verdict.UNKNOWN, Verdict.OK]) is Verdict.UNKNOWN
    assert worst([Verdict.PAUSED, Verdict.OK]) is Verdict.PAUSED
    assert worst([Verdict.PAUSED, Verdict.STALL]) is Verdict.STALL
    assert worst([Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert worst([Verdict.WARMING_UP, Verdict.PAUSED]) is Verdict.WARMING_UP
    assert worst([Verdict.CLUSTER_AWAY, Verdict.WARNING]) is Verdict.CLUSTER_AWAY


def test_a_young_mirror_warms_up_since_its_first_sample_and_metrics_keep_their_numbers() -> None:
    young = judge(looks([1000, 1000], [5, 5]))
    assert (young.verdict, young.since) == (Verdict.WARMING_UP, at(100))
    assert "2 of at least 3 samples since 2026-01-01 12:01:40 UTC" in young.reason
    assert (young.verdict.label, Verdict.CLUSTER_AWAY.label) == ("WARMING UP", "CLUSTER AWAY")
    in_metrics = {verdict.name: int(verdict.in_metrics) for verdict in Verdict}
    assert in_metrics == {
        "UNKNOWN": 0,
        "OK": 1,
        "WARNING": 2,
        "PAUSED": 3,
        "STOP": 4,
        "STALL": 5,
        "REWIND": 6,
        "WARMING_UP": 0,
        "CLUSTER_AWAY": 0,
    }


# -- catch-up ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 10_000), st.integers(1, 30), st.integers(3, 10))
def test_it_has_caught_up_at_its_eta_and_not_before(
    passed_per_s: int, produced_per_s: int, behind: int, every_s: int, count: int
) -> None:
    def lag_at(s: float) -> float:
        return behind + (produced_per_s - passed_per_s) * s

    window = []
    for index in range(count):
        s, lag = index * every_s, int(lag_at(index * every_s))
        end = 10_000_000 + produced_per_s * s
        window.append(sample(at(s), end - lag, end))
    last_s = (count - 1) * every_s
    if lag_at(last_s) <= 0:
        return
    found = catch_up(window)
    if lag_at(last_s) <= 10 * passed_per_s:
        assert found == 0, "a trend of what is under way is chance"
    elif abs(passed_per_s - produced_per_s) * last_s <= 10 * passed_per_s and passed_per_s > 0:
        assert found is None, "a steady lag has no time to catch up, and is not said to grow"
    elif passed_per_s <= produced_per_s:
        assert found == NEVER
    else:
        assert found is not None
        assert lag_at(last_s + found / 1000) <= 1e-6
        assert lag_at(last_s + (found - 1) / 1000) > -1e-6


def test_nothing_waiting_has_caught_up_and_too_few_looks_cannot_tell() -> None:
    assert catch_up(looks([5], [0])) == 0
    assert catch_up(looks([1, 2], [9, 8])) is None
    went_back = looks([1000, 2000, 3000, 0, 100, 200], [0, 0, 0, 3000, 2900, 2800])
    assert catch_up(went_back) == 2_800_000, "what was before a step back is no rate"


# -- retention --------------------------------------------------------------------------------------------------------


def test_what_stands_still_is_deleted_when_its_oldest_record_comes_of_age() -> None:
    window = looks(STANDS, [10] * 5, waiting_since=NOON)
    risk = retention_risk(window, now=at(600), retention_ms=HOUR_MS)
    assert (risk.at_risk, risk.left_ms, risk.soonest_ms) == (True, 3_000_000, 3_000_000)
    young = looks(STANDS, [10] * 5, waiting_since=at(490))
    assert retention_risk(young, now=at(500), retention_ms=HOUR_MS).at_risk, "also one that came after the first look"
    over = retention_risk(window, now=at(3700), retention_ms=HOUR_MS)
    assert (over.at_risk, over.left_ms) == (True, 0)


def test_what_keeps_pace_is_not_at_risk_but_it_is_said_how_long_it_could_rest() -> None:
    window = [sample(at(s), s, s + 50, waiting=at(s - 60), lag_ms=60_000) for s in (0, 100, 200)]
    risk = retention_risk(window, now=at(200), retention_ms=HOUR_MS)
    assert (risk.at_risk, risk.left_ms, risk.soonest_ms) == (False, None, HOUR_MS - 60_000)
    for kept in (None, -1):
        assert retention_risk(window, now=at(200), retention_ms=kept).soonest_ms is None


def test_what_the_log_lost_before_it_passed_is_said_at_once() -> None:
    window = looks(STANDS, [9000, 9100, 9200, 9300, 9400])
    assert not retention_risk(window, now=at(600), log_start=1000).at_risk
    lost = retention_risk(window, now=at(600), log_start=1017)
    assert (lost.at_risk, lost.reason[:2], lost.left_ms, lost.is_soon) == (True, "17", 0, True)


def test_a_record_whose_age_is_not_known_or_that_is_kept_for_ever_is_not_at_risk() -> None:
    assert retention_risk(looks(STANDS, [5] * 5), now=at(500), retention_ms=HOUR_MS).soonest_ms is None
    [one] = looks([50], [50], waiting_since=NOON)
    for kept, soonest_ms in ((None, None), (-1, None), (HOUR_MS, HOUR_MS - 600_000)):
        assert retention_risk([one], now=at(600), retention_ms=kept).soonest_ms == soonest_ms
    soon = retention_risk([one], now=at(600), retention_ms=660_000)
    assert (soon.soonest_ms, soon.is_soon) == (60_000, True), "less than a tenth is left"


def test_what_catches_up_first_is_not_at_risk() -> None:
    window = looks([0, 500, 1000], [900, 500, 100], waiting_since=NOON)
    assert not retention_risk(window, now=at(300), retention_ms=HOUR_MS).at_risk
    assert retention_risk(window, now=at(300), retention_ms=200_000).at_risk, "25 s to catch up, and it is too old"


@given(windows(), st.integers(1, 10_000), st.integers(0, 60))
def test_what_is_left_is_never_less_than_if_nothing_moved(
    window: list[LagSample], retention_s: int, log_start: int
) -> None:
    aged = [one._replace(waiting_since=NOON if one.offset_lag else None) for one in window]
    risk = retention_risk(aged, now=window[-1].observed_at, retention_ms=retention_s * 1000, log_start=log_start)
    if risk.left_ms is not None:
        assert risk.soonest_ms is not None
        assert risk.left_ms >= risk.soonest_ms
    assert risk.at_risk <= (risk.left_ms is not None)
    if window[-1].offset_lag == 0 and log_start <= window[-1].position:
        assert not risk.at_risk


lags = st.builds(Total, st.none() | st.integers(0, 1000), st.none() | st.integers(0, 1000))


@given(st.lists(st.lists(st.lists(lags), max_size=4), max_size=4))
def test_the_total_of_flows_is_that_of_their_partitions_and_what_is_unknown_makes_it_unknown(
    flows: list[list[list[Total]]],
) -> None:
    partitions = [one for flow in flows for topic in flow for one in topic]
    found = sum_lags(partitions)
    assert found == sum_lags(sum_lags(sum_lags(topic) for topic in flow) for flow in flows)
    assert found == sum_lags(reversed(partitions))
    for name, whole in found._asdict().items():
        assert (whole is None) == any(getattr(one, name) is None for one in partitions)
    for one in partitions:
        assert found.offset_lag is None or (one.offset_lag or 0) <= found.offset_lag
        assert found.time_lag_ms is None or (one.time_lag_ms or 0) <= found.time_lag_ms
