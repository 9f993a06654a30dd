"""What the driver of live lanes takes note of, and when it copies that to the lake."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import RemoteTopicLost, TopicConflict
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.gaps import LogTruncation
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.remotes import LossResolution, LostTopic, Remote
from mirrorlake.republish.owned_flow import OwnedFlow
from tests.builders import ledger_record, run
from tests.unit.republish.kit import owned_flow


class Ledger:
    """Lanes of committed records, read from an offset on."""

    def __init__(self, *lanes: list[LedgerRecord]) -> None:
        self.lanes = lanes

    def since(self, lane: int, offset: int) -> list[tuple[int, LedgerRecord]]:
        return list(enumerate(self.lanes[lane]))[offset:]


def committed(lane: int, seq: int, *, epoch: int = 7) -> LedgerRecord:
    return ledger_record(lane=lane, lanes=2, epoch=epoch, seq=seq)


@pytest.fixture
def copied() -> list[list[int]]:
    return []


@pytest.fixture
def owned(copied: list[list[int]]) -> OwnedFlow:
    claim = committed(0, 0).claim
    heard = SimpleNamespace(committed=lambda _: None, passed=lambda _: None)
    return owned_flow(
        settings=SimpleNamespace(listener=heard),
        copy=SimpleNamespace(add=lambda records: copied.append([one.seq for one in records])),
        claims=SimpleNamespace(claim=claim, seqs={0: 4, 1: 8}, positions={}, ends={}),
        progress=heard,
    )


@pytest.mark.law("F")
def test_law_f_what_was_read_is_copied_later_once_and_in_one_append(owned: OwnedFlow, copied: list[list[int]]) -> None:
    ledger, read_to = Ledger([committed(0, 5)], [committed(1, 9)]), {0: 0, 1: 0}
    owned.record_from_ledger(cast("Any", ledger), read_to, copies=False)
    assert (copied, owned.claims.seqs, read_to) == ([], {0: 5, 1: 9}, {0: 1, 1: 1})
    ledger.lanes[0].append(committed(0, 6))
    owned.record_from_ledger(cast("Any", ledger), read_to)
    owned.record_from_ledger(cast("Any", ledger), read_to)
    assert copied == [[5, 9, 6]]
    assert owned.record_committed([committed(1, 10)])
    assert copied == [[5, 9, 6], [10]], "a batch that is sent in between brings its own"


def test_what_a_task_committed_while_the_ledger_was_silent_is_counted_by_the_next_start(owned: OwnedFlow) -> None:
    owner = committed(0, 0).claim.owner
    owned.tenure.record_owner(owner)
    read, unread = [committed(0, 5), committed(1, 9)], [committed(0, 6), committed(1, 10)]
    owned.record_committed(read)
    strange = replace(committed(0, 7), claim=replace(committed(0, 7).claim, owner="another"))
    found = owned.tenure.find_uncounted([*read, *unread, strange])
    assert found == unread
    owned.count(found)
    assert not owned.tenure.find_uncounted([*read, *unread])


@pytest.mark.law("F")
def test_law_f_what_a_lane_writes_over_another_lane_s_records_ends_the_flow(
    owned: OwnedFlow, copied: list[list[int]]
) -> None:
    """Two lanes share a partition whose log went back; the one that goes on had written nothing past the cut."""

    def wrote(lane: int, seq: int, *downstream: int) -> LedgerRecord:
        runs = tuple(run(first, first + 9, first) for first in downstream)
        return replace(committed(lane, seq), runs=runs, remotes={"orders": Remote(runs[0].target.topic, "1")})

    owned.settings = cast(
        "Any", SimpleNamespace(flow=SimpleNamespace(name="f", target="west"), listener=owned.settings.listener)
    )
    owned.record_committed([wrote(0, 5, 100), wrote(1, 9, 110), wrote(0, 6, 120)])
    owned.record_committed([wrote(1, 10, 140), wrote(0, 7, 130)])
    [place] = owned.claims.ends
    assert owned.claims.ends[place] == 150, "the lane that is heard of last is not the furthest"
    with pytest.raises(
        RemoteTopicLost, match=f"partition {place.partition} ends at 125 and had records up to 150"
    ) as lost:
        owned.record_committed([wrote(0, 8, 125)])
    assert lost.value.cut == f"cut {place.partition}@125..150 of 1"
    assert copied[-1] == [8], "what stands in the ledger is copied all the same"


@pytest.mark.law("F")
def test_law_f_a_new_source_topic_goes_into_no_remote_topic_that_waits(owned: OwnedFlow) -> None:
    lost = LostTopic(flow="f", target="west", remote="all", topics=("orders",), known="1", found="2")
    flow = SimpleNamespace(carries=lambda _: True, remote_topic={"new": "all", "other": "own"}.get)
    owned.settings = cast("Any", SimpleNamespace(flow=flow))
    owned.resolution = LossResolution(lost=(lost,))
    assert not owned.is_sending("new")
    assert owned.is_sending("other")


class Remotes:
    """Remote topics of which some are whole, and some are another's."""

    def __init__(self, *, whole: set[str], refused: set[str]) -> None:
        self.made: list[set[str]] = []
        self._whole = whole
        self._refused = refused

    def whole(self, topics: list[KnownTopic]) -> list[KnownTopic]:
        return [topic for topic in topics if topic.name in self._whole]

    def ensure(self, sources: set[SourcePartition], *_: Any, **__: Any) -> None:
        self.made.append({source.topic for source in sources})
        if self.made[-1] & self._refused:
            raise TopicConflict("another flow writes it", consequence="", remedy="")


@pytest.mark.law("G")
def test_law_g_empty_topics_are_ready_before_their_first_record_where_the_target_stays_as_it_is() -> None:
    names = ("sent", "empty", "grown", "missing", "another's", "gone", "paused")
    known = {name: KnownTopic(name=name, partitions=2, present=name != "gone") for name in names}
    known["grown"] = replace(known["grown"], truncations=(LogTruncation(partition=1, generation=3, first_offset=5),))
    remotes = Remotes(whole={*names} - {"missing"}, refused={"another's"})
    claim = SimpleNamespace(scope=SimpleNamespace(without={"paused"}))
    flow = SimpleNamespace(carries=lambda _: True, denies=lambda _: False, remote_topic=lambda name: name)
    owned = owned_flow(
        settings=SimpleNamespace(flow=flow),
        topics=SimpleNamespace(known=known, load=lambda: known),
        remotes=remotes,
        claims=SimpleNamespace(claim=claim, positions={}),
        ready={SourcePartition("sent", 0, 0)},
    )
    assert owned.ensure_empty_topics()
    assert owned.ready == {
        SourcePartition("sent", 0, 0),
        *(SourcePartition("empty", 0, n) for n in (0, 1)),
        SourcePartition("grown", 0, 0),
        SourcePartition("grown", 3, 1),
    }
    remotes.made.clear()
    assert not owned.ensure_empty_topics()
    assert remotes.made == [], "what stands in a topic's way is not looked at again and again"
