"""The ledger record reads back as it was written, and refuses what is none."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import SafetyError
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.epochs import EPOCHS, is_possible, next_epoch, table_version
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.lanes import of_lane
from mirrorlake.model.ledger import Claim, LedgerRecord, fold, supersedes
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.remotes import Remote
from mirrorlake.republish.start import check_ledger, check_origin
from tests.builders import ledger_record, run, run_over

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
sources = st.builds(SourcePartition, topics, st.integers(1, 9), st.integers(0, 500))
positions = st.dictionaries(sources, st.integers(0, 2**60), max_size=8)


claims = st.builds(
    Claim,
    flow=st.text(max_size=20),
    lane=st.integers(0, 64),
    lanes=st.integers(1, 64),
    epoch=st.integers(0, 2**40),
    owner=st.text(max_size=40),
    checkpoint_location=st.integers(0, 99),
    batch=st.integers(-1, 2**40),
    scope=st.builds(CheckpointScope, st.text("0123456789abcdef", min_size=1), st.frozensets(topics, max_size=4)),
    cluster_id=st.just("") | topics,
)


@st.composite
def runs(draw: st.DrawFn) -> MappedRange:
    offsets = sorted(draw(st.sets(st.integers(0, 2**60), min_size=1, max_size=30)))
    source, target = draw(sources), TopicPartition(draw(topics), draw(st.integers(0, 500)))
    return run_over(offsets, draw(st.integers(0, 2**60)), source=source, target=target)


@pytest.mark.law("F")
@given(
    st.builds(
        LedgerRecord,
        claim=claims,
        seq=st.integers(0, 2**50),
        remotes=st.dictionaries(topics, st.builds(Remote, topics, topics), max_size=5),
        positions=positions,
        earlier=st.dictionaries(st.builds(Remote, topics, topics), positions, max_size=3),
        runs=st.lists(runs(), max_size=4).map(tuple),
        committed_at_ms=st.integers(0, 2**45),
    ),
    st.none() | st.integers(0, 2**50),
)
def test_law_f_a_record_reads_back_as_it_was_written(record: LedgerRecord, full_seq: int | None) -> None:
    if full_seq is not None:
        # What was sent of a partition moved its position.
        after = {run.source: run.last_upstream + 1 for run in sorted(record.runs, key=lambda one: one.last_upstream)}
        positions = {**after, **record.positions}
        record = replace(record, positions=positions, earlier={}, full_seq=full_seq, is_whole=False)
    assert LedgerRecord.from_json(record.to_json()) == record
    assert ("full" in json.loads(record.to_json())) != record.is_whole, "law F: a part is believed to be the whole"


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"v": 2}', b'{"v": 99}', b"null"])
def test_what_is_no_ledger_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"ledger record|Expecting|JSON"):
        LedgerRecord.from_json(value)


epochs = st.integers(0, EPOCHS - 2)


@pytest.mark.law("F")
@given(epochs, epochs, st.integers(0, 2**30 - 1), st.integers(0, 2**30 - 1))
def test_law_f_versions_of_a_later_owner_are_above_all_of_an_earlier_one(
    one: int, other: int, append: int, another: int
) -> None:
    first, second = sorted((one, other))
    if first != second:
        assert table_version(first, append) < table_version(second, another) < 2**63


@pytest.mark.law("F")
@given(st.lists(st.integers(0, 2**70)), st.integers(0, 4_102_444_800))
def test_law_f_an_epoch_is_above_every_possible_one(known: list[int], now: int) -> None:
    epoch = next_epoch(known, datetime.fromtimestamp(now, timezone.utc))
    assert all(epoch > one for one in known if is_possible(one))
    assert epoch < EPOCHS


def record(lane: int, epoch: int, seq: int, *, lanes: int = 2, sent: bool = False) -> LedgerRecord:
    runs = (run(0, 0, source=SourcePartition("t", 1, lane)),) if sent else ()
    return ledger_record(flow="f", lane=lane, lanes=lanes, epoch=epoch, owner=str(epoch), seq=seq, runs=runs)


@pytest.mark.law("F")
def test_law_f_a_record_of_a_replaced_owner_is_not_the_newest() -> None:
    read = [record(0, 5, 3), record(0, 4, 9), record(0, 5, 4), record(0, 5, 4), record(0, 2**50, 5), record(0, 4, 6)]
    assert [(one.claim.epoch, one.seq) for one in _newest(read)] == [(5, 3), (5, 4), (2**50, 5), (4, 6)]


LANES = 2
PARTITIONS = [SourcePartition(topic, 1, partition) for topic in ("a", "b", "c") for partition in range(3)]
MINE = [source for source in PARTITIONS if source in of_lane(dict.fromkeys(PARTITIONS, 0), 0, lanes=LANES)]


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[list[LedgerRecord], list[LedgerRecord]]:
    """A lane's ledger as it is written, and as it were if every record were full."""
    written: list[LedgerRecord] = []
    full: list[LedgerRecord] = []
    epoch, seq, base = 5, 0, 0
    positions: dict[SourcePartition, int] = {}
    remotes: dict[str, Remote] = {}
    replaced: Claim | None = None
    for step in [
        "claim",
        *draw(st.lists(st.sampled_from(["claim", "chunk", "chunk", "chunk", "zombie"]), max_size=12)),
    ]:
        claim = Claim(flow="f", lane=0, lanes=LANES, epoch=epoch, owner=f"o{epoch}")
        if step == "claim":
            if written:
                replaced, epoch = claim, epoch + 1
                claim = replace(claim, epoch=epoch, owner=f"o{epoch}")
            others = draw(st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 9), max_size=3))
            positions = {**others, **positions}
            remotes = {source.topic: Remote(f"e.{source.topic}", f"{epoch}") for source in positions}
            earlier = {Remote("e", f"{epoch}"): others} if others else {}
            is_full = True
        elif step == "chunk":
            moved = draw(st.sets(st.sampled_from(MINE), min_size=1, max_size=3))
            reached = {source: positions.get(source, 0) + draw(st.integers(1, 9)) for source in moved}
            new = {source.topic: Remote(f"e.{source.topic}", "new") for source in moved}
            positions = {**of_lane(positions, 0, lanes=LANES), **reached}
            remotes = {**new, **{topic: one for topic, one in remotes.items() if topic in {s.topic for s in positions}}}
            is_full = draw(st.booleans())
        elif replaced is not None:
            # Without transactions an owner that was replaced can still append.
            zombie = LedgerRecord(claim=replaced, seq=seq + draw(st.integers(-2, 3)), positions={MINE[0]: 999})
            written.append(replace(zombie, full_seq=0, is_whole=False))
            full.append(zombie)
            continue
        else:
            continue
        seq += 1
        base = seq if is_full else base
        whole = LedgerRecord(claim=claim, seq=seq, positions=positions, remotes=remotes, earlier=earlier)
        full.append(whole)
        if not is_full:
            some = {topic: remotes[topic] for topic in new}
            whole = replace(whole, positions=reached, remotes=some, earlier={}, full_seq=base, is_whole=False)
        written.append(whole)
    return written, full


@pytest.mark.law("F")
@given(ledgers(), st.integers(0, 12), st.integers(0, 12))
def test_law_f_a_lane_stands_where_full_records_alone_would_say(
    both: tuple[list[LedgerRecord], list[LedgerRecord]], start: int, cut: int
) -> None:
    written, full = both
    [*_, expected] = _newest(full)
    own = [index for index, one in enumerate(written) if one.claim == expected.claim]
    last_full = max(index for index in own if written[index].is_whole)
    state = fold(written[min(start, last_full) :])
    assert state is not None
    assert (state.claim, state.seq, state.is_whole) == (expected.claim, expected.seq, True)
    assert (state.positions, state.remotes, state.earlier) == (
        expected.positions,
        expected.remotes,
        expected.earlier,
    ), "law F: the ledger knows less"
    assert fold(written[cut:], fold(written[:cut])) == fold(written), "it is folded in parts as in one"
    later = fold([written[index] for index in own if index > last_full])
    assert later is None or not later.is_whole, "law F: a part was believed to be the whole"


def _newest(records: list[LedgerRecord]) -> list[LedgerRecord]:
    newest: list[LedgerRecord] = []
    for one in records:
        if supersedes(one, newest[-1] if newest else None):
            newest.append(one)
    return newest


@pytest.mark.law("F")
def test_law_f_a_missing_record_is_noticed_and_two_workers_of_one_owner_lose_nothing() -> None:
    """Without transactions a worker that was given up may still commit, beside the one that took its place."""

    def part(seq: int, **reached: int) -> LedgerRecord:
        positions = {SourcePartition(topic, 1, 0): at for topic, at in reached.items()}
        return replace(ledger_record(seq=seq, positions=positions), full_seq=3, is_whole=False)

    claim = ledger_record(seq=3, positions={SourcePartition("a", 1, 0): 1})
    zombie = replace(claim, claim=replace(claim.claim, epoch=0))
    for records in (
        [claim, part(5, a=9)],
        [part(4, a=5), part(5, a=9)],
        [claim, part(4, a=5), part(6, a=9)],
        [zombie, part(4, a=5)],
    ):
        assert (last := fold(records)) is not None
        assert not last.is_whole
        assert last.seq == records[-1].seq
    last = fold([claim, part(4, a=50), part(4, b=20), part(5, a=40, c=1)])
    assert last is not None
    assert last.is_whole
    assert {source.topic: at for source, at in last.positions.items()} == {"a": 50, "b": 20, "c": 1}


class Copy:
    """What the lake holds of a ledger."""

    def __init__(self, copied_seqs: dict[int, int], *, takeover: bool = False) -> None:
        self.copied_seqs, self._takeover = copied_seqs, takeover

    def has_takeover(self) -> bool:
        return self._takeover


@pytest.mark.law("F")
@pytest.mark.parametrize(
    ("last", "copy", "refused"),
    [
        ({}, Copy({}), ""),
        ({0: record(0, 5, 3, sent=True), 1: record(1, 5, 0)}, Copy({0: 3}), ""),
        # Two of four claims stand; the two lanes that the flow had had sent before.
        ({0: record(0, 6, 4, lanes=4), 1: record(1, 5, 3, sent=True), 2: None, 3: None}, Copy({1: 3}), ""),
        ({0: None, 1: None}, Copy({0: 3}), "holds nothing"),
        ({0: record(0, 5, 2), 1: record(1, 5, 0)}, Copy({0: 3}), "ends at record 2"),
        (
            {0: record(0, 5, 3, sent=True), 1: None},
            Copy({0: 3}),
            "lane 1 .* holds nothing, but lane 0 has sent in epoch 5",
        ),
        ({0: record(0, 5, 3, sent=True), 1: record(1, 4, 7)}, Copy({}), "ends in epoch 4"),
        ({}, Copy({}, takeover=True), "has taken over from MirrorMaker 2"),
        ({0: record(0, 2**40, 3)}, Copy({}), "epoch 1099511627776"),
        (
            {0: replace(record(0, 5, 3, sent=True), full_seq=2, is_whole=False), 1: record(1, 5, 0)},
            Copy({0: 3}),
            "lane 0 .* lacks its last full record 2: record 3 holds only the positions that changed",
        ),
    ],
)
def test_law_f_a_ledger_that_lacks_something_is_refused_and_one_that_is_whole_is_not_restored(
    last: dict[int, LedgerRecord | None], copy: Copy, refused: str
) -> None:
    flow = FlowConfig(source="east", target="central", topics="t")

    def check(*, restore: bool) -> None:
        check_ledger(flow, last, copy, restore=restore)  # type: ignore[arg-type]

    if not refused:
        check(restore=False)
        with pytest.raises(SafetyError, match="is complete"):
            check(restore=True)
        return
    with pytest.raises(SafetyError, match=refused) as error:
        check(restore=False)
    assert error.value.exit_code == 3
    assert "--restore-ledger" in error.value.remedy
    check(restore=True)


@pytest.mark.law("E")
@pytest.mark.parametrize(
    ("before", "now", "is_refused"),
    [("1", "2", True), ("1", "1", False), ("", "2", False), ("1", "", False)],
)
def test_law_e_a_ledger_of_another_source_cluster_is_not_gone_on_in(before: str, now: str, *, is_refused: bool) -> None:
    flow = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "orders"})
    last = {0: ledger_record(cluster_id=before), 1: None}
    refusal = pytest.raises(SafetyError, match="from cluster 1, but east has the cluster id 2")
    with refusal if is_refused else nullcontext():
        check_origin(flow, last, now)
