"""Where the oldest record is that a flow has still to send: status and failover say the same of one relay."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from mirrorlake.lag import find_unsent
from mirrorlake.lag.source_reader import SourceReader

from mirrorlake.context import Context
from mirrorlake.lake import RelayLog, landed_positions
from mirrorlake.model.flow import SourcePartition
from tests.builders import ORDERS
from tests.kit.lake import LakeBuilder


class World:
    """A relay of a source that does not answer, and a flow from it."""

    def __init__(self, built: LakeBuilder) -> None:
        self.built, mirror = built.observe("orders"), built.mirror(topics="orders")
        self.context: Context = mirror._context
        self.lake, [self.flow] = mirror.lake, mirror.config.flows
        self.reader = SourceReader(self.context, "east")

    def lag(self, sent: int, reader: SourceReader | None = None) -> int:
        """Return the offsets that a sample says the flow has to send."""
        reader = reader or self.reader
        reader.flows = [self.flow]
        reader.use_recorded_topics()
        landed, read_to = reader.read_landed()
        found = reader.flow_positions(landed, read_to, {("flow", self.flow.name): {ORDERS: sent}})
        [reached], [republished] = found["relay", "east"].values(), found["flow", self.flow.name].values()
        return reached - republished

    def unsent(self, sent: int) -> Mapping[SourcePartition, int]:
        return find_unsent(self.lake, self.flow, {ORDERS: sent}, landed_positions(self.lake, "east").reached)


@pytest.fixture
def world(built: LakeBuilder) -> World:
    return World(built)


@pytest.mark.parametrize("erased", [True, False], ids=["erased", "never landed"])
def test_a_marker_before_records_that_will_never_be_sent_is_no_lag_that_never_ends(world: World, erased: bool) -> None:
    # 8 is the marker of a transaction, 9 to 11 are not in the relay any more, or never were.
    world.built.land("orders", 0, range(8)).position("landed", 12)
    if erased:
        world.built.add("removed", removal="r", kind="erased", first_offset=9, last_offset=11, record_count=3)
    assert (world.unsent(8), world.lag(8)) == ({}, 0)
    assert (world.unsent(6), world.lag(6)) == ({ORDERS: 6}, 6)
    world.built.land("orders", 0, [20, 21])
    assert (world.unsent(8), world.lag(8, SourceReader(world.context, "east"))) == ({ORDERS: 8}, 2)


def test_a_position_that_moves_is_not_looked_up_and_one_that_rests_is_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.built.land("orders", 0, range(4)).land("orders", 0, [6, 7])
    lists: list[object] = []
    files = RelayLog.files
    monkeypatch.setattr(RelayLog, "files", lambda log, at, **kind: lists.append(at) or files(log, at, **kind))
    lags = [world.lag(sent) for sent in (4, 4, 5, 5, 5)]
    assert (lags, lists[1:]) == ([2, 2, 3, 2, 2], [{ORDERS: 4}, {ORDERS: 5}])
    world.built.land("orders", 0, [8])
    assert world.lag(5) == 3, "what comes later changes nothing of the first record"
    assert len(lists) == 3
    world.reader._unsent.forget()
    assert (world.lag(5), len(lists)) == (3, 4), "from time to time: records may have been erased meanwhile"
