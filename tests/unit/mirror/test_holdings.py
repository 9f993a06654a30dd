"""Law F: of two mirrors that run the same flows one has both halves of each, and the newer one wins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from mirrorlake.errors import LanderReplaced, LaneFenced, StoreError
from mirrorlake.lake.landing_commits import lander_replaced_error
from mirrorlake.mirror import holdings
from mirrorlake.mirror.holdings import Holdings
from mirrorlake.mirror.results import LandResult, RepublishResult
from mirrorlake.model.ledger import Claim
from mirrorlake.model.owner import new_owner, said_owner
from mirrorlake.republish import Tenure
from tests.builders import mirror_config

FLOW = "east->central"
CONFIG = mirror_config({"target": "central"}).flows[0]


class Relay:
    """The relay of a source: who claimed it last."""

    def __init__(self) -> None:
        self.number = 0
        self.owner = ""


class Writer:
    def __init__(self, relay: Relay, alias: str) -> None:
        self.relay, self.alias, self.number = relay, alias, 0

    @property
    def keeps_number(self) -> bool:
        return self.number > 0

    def claim(self, owner: str = "") -> None:
        self.relay.number += 1
        self.number, self.relay.owner = self.relay.number, owner or new_owner()

    def newest_owner(self) -> str:
        return self.relay.owner

    def resume_after(self, owner: str) -> None:
        self.number = self.relay.number
        if self.relay.owner != owner:
            raise lander_replaced_error(self.alias)

    def require_unfenced(self) -> None:
        if self.number != self.relay.number:
            raise lander_replaced_error(self.alias)


class Process:
    """A running mirror that lands `east` and carries one flow of it."""

    def __init__(self, relay: Relay) -> None:
        self.gone: list[StoreError] = []
        self.stop, self.ends_after, self.sent_by = threading.Event(), 0, ""
        self.meanwhile: Callable[[], object] = lambda: None
        self.holdings = Holdings(
            lambda: relay,  # type: ignore[arg-type, return-value]
            self._can_work,
            owner_of=lambda _: self.sent_by,
            lives=self._lives,
        )
        self.want("1")

    def want(self, asked: str, *, landed: bool = True) -> None:
        self.holdings.want({"east": asked} if landed else {}, {FLOW: ("east", asked)})

    def _can_work(self) -> None:
        if self.gone:
            raise self.gone[0]

    def _lives(self, sign: str) -> bool:
        assert sign == "ab12"
        self.ends_after -= 1
        if self.ends_after == 0:
            self.meanwhile()
        return self.ends_after >= 0

    def land(self) -> LandResult:
        def call(writer: Any) -> LandResult:
            if writer.keeps_number:
                writer.require_unfenced()
            writer.claim()
            return LandResult("east", 1)

        return self.holdings.land("east", call, self.stop)

    @property
    def tenure(self) -> Tenure:
        seen: list[Tenure] = []

        def call(tenure: Tenure) -> RepublishResult:
            seen.append(tenure)
            return RepublishResult(FLOW, 0)

        self.holdings.republish(CONFIG, call, self.stop)
        return seen[0]


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Relay:
    monkeypatch.setattr(holdings, "FencedRelayWriter", Writer)
    monkeypatch.setattr(holdings, "_LANDING_TIMEOUT_S", 0.05)
    monkeypatch.setattr(holdings, "_LOOK_S", 0.01)
    return Relay()


@pytest.mark.law("F")
def test_law_f_whose_landing_was_replaced_claims_no_flow_of_that_source(relay: Relay) -> None:
    older, newer = Process(relay), Process(relay)
    older.land()
    older.tenure.require_claimable()
    newer.land()
    newer.tenure.require_claimable()
    with pytest.raises(LanderReplaced):
        older.tenure.require_claimable()
    with pytest.raises(LanderReplaced):
        older.land()
    # Until a person resumes both: then it is the newer one.
    older.want("2")
    older.land()
    older.tenure.require_claimable()
    with pytest.raises(LanderReplaced):
        newer.tenure.require_claimable()


@pytest.mark.law("F")
def test_law_f_whose_landing_was_replaced_before_it_had_a_number_claims_no_flow_of_that_source(relay: Relay) -> None:
    older, newer = Process(relay), Process(relay)

    def claim(writer: Any) -> LandResult:
        # Both claim at the same time, and this one is the slower.
        newer.land()
        raise lander_replaced_error(writer.alias)

    with pytest.raises(LanderReplaced):
        older.holdings.land("east", claim, older.stop)
    with pytest.raises(LanderReplaced):
        older.tenure.require_claimable()
    newer.tenure.require_claimable()


@pytest.mark.law("F")
def test_law_f_a_flow_waits_a_moment_for_the_landing_of_its_source_and_goes_without_one_that_is_away(
    relay: Relay,
) -> None:
    process = Process(relay)
    process.tenure.require_claimable()
    process.want("1", landed=False)
    process.tenure.require_claimable()


@pytest.mark.law("F")
def test_law_f_whom_a_command_replaced_waits_for_its_end_and_comes_back_by_itself(relay: Relay) -> None:
    process, command = Process(relay), Writer(relay, "east")
    process.land()
    command.claim(new_owner("ab12"))
    process.ends_after = 3
    # A flow of the source goes on meanwhile.
    process.tenure.require_claimable()
    assert process.land().records == 1
    assert (process.ends_after, relay.number) == (-1, 3), "law F: it claimed once the command had ended"
    # Another mirror that claims meanwhile is the newer one.
    newer = Process(relay)
    command.claim(new_owner("ab12"))
    process.ends_after, process.meanwhile = 3, newer.land
    with pytest.raises(LanderReplaced):
        process.land()
    newer.tenure.require_claimable()
    process.want("2")
    process.land()
    # One that is to stop does not wait.
    command.claim(new_owner("ab12"))
    process.ends_after = 3
    process.stop.set()
    before = relay.number
    assert process.land().records == 0
    assert relay.number == before


@pytest.mark.law("F")
def test_law_f_a_flow_that_a_command_sent_for_is_claimed_again_after_it_and_one_of_another_mirror_is_not(
    relay: Relay,
) -> None:
    process, mine, theirs = Process(relay), new_owner(), new_owner("ab12")
    last = [Claim(flow=FLOW, lanes=1, epoch=5, owner=mine)]

    def send(tenure: Tenure) -> RepublishResult:
        tenure.require_claimable(last)
        tenure.record_owner(mine)
        tenure.record_claim(last[0])
        return RepublishResult(FLOW, 1)

    process.land()
    process.holdings.republish(CONFIG, send, process.stop)
    last.append(Claim(flow=FLOW, lanes=1, epoch=6, owner=theirs))
    process.sent_by, process.ends_after = theirs, 2
    assert process.holdings.republish(CONFIG, send, process.stop).records == 1
    assert process.ends_after == -1
    last.append(Claim(flow=FLOW, lanes=1, epoch=7, owner=new_owner()))
    process.sent_by = last[-1].owner
    with pytest.raises(LaneFenced):
        process.holdings.republish(CONFIG, send, process.stop)


@pytest.mark.law("F")
def test_law_f_a_process_without_spark_claims_nothing(relay: Relay) -> None:
    process = Process(relay)
    process.gone.append(StoreError("Spark does not answer"))
    with pytest.raises(StoreError):
        process.land()
    with pytest.raises(StoreError):
        process.tenure.require_claimable()
    assert relay.number == 0


@pytest.mark.law("F")
def test_law_f_a_stream_that_starts_again_leaves_its_flow_to_whoever_took_it_over_meanwhile() -> None:
    tenure, mine, other = Tenure(), new_owner(), new_owner()
    first = Claim(flow=FLOW, lanes=1, epoch=5, owner=mine)
    tenure.require_claimable([Claim(flow=FLOW, lanes=1, epoch=4, owner=other)])
    tenure.record_owner(mine)
    tenure.record_claim(first)
    tenure.require_claimable([first])
    # A claim of its own that did not reach every lane.
    again = new_owner()
    tenure.record_owner(again)
    tenure.require_claimable([first, Claim(flow=FLOW, lanes=1, epoch=6, owner=again)])
    with pytest.raises(LaneFenced) as refused:
        tenure.require_claimable([first, Claim(flow=FLOW, lanes=1, epoch=7, owner=other)])
    assert said_owner(other) in str(refused.value)
