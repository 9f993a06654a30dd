"""Law F: of two mirrors that run the same flows one has both halves of each, and the newer one wins."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.errors import LanderReplaced, LaneFenced, StoreError
from mirrorlake.lake.landing_commits import replaced
from mirrorlake.mirror import holdings
from mirrorlake.mirror.holdings import Holdings
from mirrorlake.mirror.results import Landing
from mirrorlake.model.ledger import Claim
from mirrorlake.model.owner import new_owner, said_owner
from mirrorlake.republish.tenure import Tenure

FLOW = "east->central"


class Relay:
    """The relay of a source: who claimed it last."""

    def __init__(self) -> None:
        self.number = 0


class Writer:
    def __init__(self, relay: Relay, alias: str) -> None:
        self.relay, self.alias, self.number = relay, alias, 0

    @property
    def is_held(self) -> bool:
        return self.number > 0

    def claim(self) -> None:
        self.relay.number += 1
        self.number = self.relay.number

    def require(self) -> None:
        if self.number != self.relay.number:
            raise replaced(self.alias)


class Process:
    """A running mirror that lands `east` and carries one flow of it."""

    def __init__(self, relay: Relay) -> None:
        self.gone: list[StoreError] = []
        self.holdings = Holdings(lambda: relay, self._can_work)  # type: ignore[arg-type, return-value]
        self.want("1")

    def want(self, asked: str, *, landed: bool = True) -> None:
        self.holdings.want({"east": asked} if landed else {}, {FLOW: ("east", asked)})

    def _can_work(self) -> None:
        if self.gone:
            raise self.gone[0]

    def land(self) -> Landing:
        def call(writer: Any) -> Landing:
            if writer.is_held:
                writer.require()
            writer.claim()
            return Landing("east", 1)

        return self.holdings.land("east", call)

    @property
    def tenure(self) -> Tenure:
        return self.holdings.tenure(FLOW)


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Relay:
    monkeypatch.setattr(holdings, "OneWriter", Writer)
    monkeypatch.setattr(holdings, "_LANDING_WITHIN_S", 0.05)
    monkeypatch.setattr(holdings, "_LOOK_S", 0.01)
    return Relay()


@pytest.mark.law("F")
def test_law_f_whose_landing_was_replaced_claims_no_flow_of_that_source(relay: Relay) -> None:
    older, newer = Process(relay), Process(relay)
    older.land()
    older.tenure.may_claim()
    newer.land()
    newer.tenure.may_claim()
    with pytest.raises(LanderReplaced):
        older.tenure.may_claim()
    with pytest.raises(LanderReplaced):
        older.land()
    # Until a person resumes both: then it is the newer one.
    older.want("2")
    older.land()
    older.tenure.may_claim()
    with pytest.raises(LanderReplaced):
        newer.tenure.may_claim()


@pytest.mark.law("F")
def test_law_f_a_flow_waits_a_moment_for_the_landing_of_its_source_and_goes_without_one_that_is_away(
    relay: Relay,
) -> None:
    process = Process(relay)
    process.tenure.may_claim()
    process.want("1", landed=False)
    process.tenure.may_claim()


@pytest.mark.law("F")
def test_law_f_a_process_without_spark_claims_nothing(relay: Relay) -> None:
    process = Process(relay)
    process.gone.append(StoreError("Spark does not answer"))
    with pytest.raises(StoreError):
        process.land()
    with pytest.raises(StoreError):
        process.tenure.may_claim()
    assert relay.number == 0


@pytest.mark.law("F")
def test_law_f_a_stream_that_starts_again_leaves_its_flow_to_whoever_took_it_over_meanwhile() -> None:
    tenure, mine, other = Tenure(), new_owner(), new_owner()
    first = Claim(flow=FLOW, lanes=1, epoch=5, owner=mine)
    tenure.may_claim([Claim(flow=FLOW, lanes=1, epoch=4, owner=other)])
    tenure.begin(mine)
    tenure.claimed(first)
    tenure.may_claim([first])
    # A claim of its own that did not reach every lane.
    again = new_owner()
    tenure.begin(again)
    tenure.may_claim([first, Claim(flow=FLOW, lanes=1, epoch=6, owner=again)])
    with pytest.raises(LaneFenced) as refused:
        tenure.may_claim([first, Claim(flow=FLOW, lanes=1, epoch=7, owner=other)])
    assert said_owner(other) in str(refused.value)
