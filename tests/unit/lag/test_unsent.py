"""Where the oldest record is that a flow has still to send: status and failover say the same of one relay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mirrorlake.context import Context, utc_now
from mirrorlake.lag import find_unsent
from mirrorlake.lag.source_reader import SourceReader
from mirrorlake.lake import METADATA, POSITIONS, KnownTopic, RelayLog, landed_positions, position_row
from mirrorlake.lake.metadata import topic_row
from mirrorlake.lake.removed import write_removed
from mirrorlake.lake.schema import REMOVED
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.removed import ERASED, Removed
from tests.builders import NOON, ORDERS, mirror_config
from tests.lakes import Relay, lake_in, rows


class World:
    """A relay of a source that does not answer, and a flow from it."""

    def __init__(self, folder: Path) -> None:
        self.lake = lake_in(folder / "lake", METADATA, POSITIONS, REMOVED)
        self.relay = Relay(Path(self.lake.relay_location("east")))
        config = mirror_config({}, lake={"root": str(folder / "lake")})
        self.context, self.flow = Context(config, spark=None, now=utc_now, display=lambda: None), config.flows[0]
        orders = KnownTopic(name="orders", generation=1, topic_id="x", partitions=1)
        self.lake.append_rows(METADATA, [topic_row("east", "source", orders, NOON)])
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
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("erased", [True, False], ids=["erased", "never landed"])
def test_a_marker_before_records_that_will_never_be_sent_is_no_lag_that_never_ends(world: World, erased: bool) -> None:
    # 8 is the marker of a transaction, 9 to 11 are not in the relay any more, or never were.
    world.relay.land(rows("orders", 0, *range(8)))
    world.lake.append_rows(POSITIONS, [position_row("east", ORDERS, "landed", 12, NOON)])
    if erased:
        gone = {"removal": "r", "source": ORDERS, "kind": ERASED, "records": 3, "removed_at": NOON}
        act = Removed(**gone, first_offset=9, last_offset=11)
        write_removed(world.lake, "east", [act])
    assert (world.unsent(8), world.lag(8)) == ({}, 0)
    assert (world.unsent(6), world.lag(6)) == ({ORDERS: 6}, 6)
    world.relay.land(rows("orders", 0, 20, 21))
    assert (world.unsent(8), world.lag(8, SourceReader(world.context, "east"))) == ({ORDERS: 8}, 2)


def test_a_position_that_moves_is_not_looked_up_and_one_that_rests_is_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.relay.land(rows("orders", 0, *range(4)))
    world.relay.land(rows("orders", 0, 6, 7))
    lists: list[object] = []
    files = RelayLog.files
    monkeypatch.setattr(RelayLog, "files", lambda log, at, **kind: lists.append(at) or files(log, at, **kind))
    lags = [world.lag(sent) for sent in (4, 4, 5, 5, 5)]
    assert (lags, lists[1:]) == ([2, 2, 3, 2, 2], [{ORDERS: 4}, {ORDERS: 5}])
    world.relay.land(rows("orders", 0, 8))
    assert world.lag(5) == 3, "what comes later changes nothing of the first record"
    assert len(lists) == 3
    world.reader._unsent.forget()
    assert (world.lag(5), len(lists)) == (3, 4), "from time to time: records may have been erased meanwhile"
