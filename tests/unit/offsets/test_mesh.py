"""Law A where two clusters mirror each other: what a flow's groups are told, from the maps of both flows."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.kafka import Committed
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import PositionCheck, Resume
from mirrorlake.offsets import OffsetMaps, RelatedFlows
from mirrorlake.offsets.mesh import Mesh
from tests.builders import mirror_config
from tests.kit.memory_cluster import MemoryCluster

ORDERS = SourcePartition("orders", 1, 0)
REMOTE = TopicPartition("orders", 0)
# east: E1 E2 W1 W2 W3; west: W1 W2 W3 E1 E2. First upstream offset, first downstream offset, records.
STRETCHES = {("east->west", "orders", 0): [(0, 3, 2)], ("west->east", "orders", 0): [(0, 2, 3)]}


def asked(
    own: dict[str, int],
    *,
    check: PositionCheck | None = None,
    known: dict[TopicPartition, int] | None = None,
    earliest: int = 0,
) -> Resume:
    """Ask where a group goes on at west; `own` are the positions that it committed itself, by flow."""
    ends = (("east", "west"), ("west", "east"))
    config = mirror_config(*({"source": one, "target": two, "policy": "identity"} for one, two in ends))
    there, back = config.flow("east->west"), config.flow("west->east")
    assert there.adds_hops, "clusters that mirror each other under one name tell the way by header"
    topic = {"orders": KnownTopic(name="orders", generation=1, partitions=1)}
    related = RelatedFlows(flows=(there,), topics={there.name: topic, back.name: topic}, mesh=(there, back))
    nothing: Any = None
    maps = OffsetMaps(lake=nothing, positions={there.name: {ORDERS: 5}, back.name: {ORDERS: 5}})
    target: Any = MemoryCluster(orders=(earliest, 5))
    mesh = Mesh(related, maps, target=target, known={REMOTE: 5} if known is None else known)
    mesh.__dict__ |= {"_read_dense_ranges": STRETCHES, "_withheld": {}}
    readers = {name: {("billing", ORDERS): Committed(offset)} for name, offset in own.items()}
    translated = {("billing", ORDERS): Committed(own[there.name])}
    checks = {(there.name, (ORDERS, own[there.name])): check or PositionCheck()}
    [((reader, partition), found)] = mesh.resume(translated, readers, checks).items()
    assert (reader, partition, found.target, found.source) == ("billing", REMOTE, REMOTE, ORDERS)
    return found


@pytest.mark.law("A")
@pytest.mark.parametrize(
    ("own", "position", "again"),
    [
        ({"east->west": 2}, 0, 2),  # it has read E1 E2, and not W1
        ({"east->west": 5}, 5, 0),
        ({"east->west": 2, "west->east": 3}, 5, 0),  # W1 W2 W3 on west itself
        ({"east->west": 1, "west->east": 3}, 4, 0),
    ],
)
def test_law_a_the_first_record_that_the_group_has_read_nowhere(own: dict[str, int], position: int, again: int) -> None:
    found = asked(own)
    assert (found.downstream_offset, found.records_again, found.exact) == (position, again, not again)
    assert ("the logs interleave: west's own record" in found.reason) == bool(again)


@pytest.mark.law("A")
def test_law_a_nothing_is_said_of_what_is_not_certain() -> None:
    assert asked({"east->west": 5}, known={}).downstream_offset is None
    unsafe = asked({"east->west": 5}, check=PositionCheck(is_safe=False, reason="records were never republished"))
    assert (unsafe.downstream_offset, unsafe.reason) == (None, "records were never republished")


def test_what_waits_on_the_source_counts_unless_it_is_a_copy() -> None:
    waiting = PositionCheck(exact=False, again=1, reason="past what was republished")
    copies = asked({"east->west": 5}, check=waiting)
    assert (copies.downstream_offset, copies.records_again, copies.exact) == (5, 0, True)
    one_more = asked({"east->west": 6}, check=waiting)
    assert (one_more.downstream_offset, one_more.records_again, one_more.exact) == (5, 1, False)


def test_a_position_that_retention_removed_moves_to_the_first_record() -> None:
    assert asked({"east->west": 2}, earliest=1).downstream_offset == 1
