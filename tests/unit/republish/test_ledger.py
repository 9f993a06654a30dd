"""The ledger record reads back as it was written, and refuses what is none."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.errors import SafetyError
from mirrorlake.model.epochs import EPOCHS, is_possible, next_epoch, table_version
from mirrorlake.model.flow import SourcePartition, TopicPartition, kafka_name, ledger_topic, transactional_id
from mirrorlake.model.ledger import LedgerRecord, supersedes
from mirrorlake.model.offset_map import Run
from mirrorlake.model.remotes import Remote
from mirrorlake.republish.start import Start
from tests.builders import ledger_record, run, run_over

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
sources = st.builds(SourcePartition, topics, st.integers(1, 9), st.integers(0, 500))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    offsets = sorted(draw(st.sets(st.integers(0, 2**60), min_size=1, max_size=30)))
    source, target = draw(sources), TopicPartition(draw(topics), draw(st.integers(0, 500)))
    return run_over(offsets, draw(st.integers(0, 2**60)), source=source, target=target)


@pytest.mark.law("F")
@given(
    st.builds(
        LedgerRecord,
        flow=st.text(max_size=20),
        lane=st.integers(0, 64),
        lanes=st.integers(1, 64),
        epoch=st.integers(0, 2**40),
        owner=st.text(max_size=40),
        seq=st.integers(0, 2**50),
        checkpoint=st.integers(0, 99),
        remotes=st.dictionaries(topics, st.builds(Remote, topics, topics), max_size=5),
        batch=st.integers(-1, 2**40),
        positions=st.dictionaries(sources, st.integers(0, 2**60), max_size=8),
        runs=st.lists(runs(), max_size=4).map(tuple),
        committed_at_ms=st.integers(0, 2**45),
    )
)
def test_law_f_a_record_reads_back_as_it_was_written(record: LedgerRecord) -> None:
    assert LedgerRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"v": 99}', b"null"])
def test_what_is_no_ledger_record_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"ledger record|Expecting|JSON"):
        LedgerRecord.from_json(value)


def test_names_on_the_target() -> None:
    assert kafka_name("east->central") == "east.central"
    assert ledger_topic("east->central") == "mirrorlake.east.central.ledger"
    assert transactional_id("east->central", 3) == "mirrorlake.east.central.3"


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
    newest: list[LedgerRecord] = []
    for one in read:
        if supersedes(one, newest[-1] if newest else None):
            newest.append(one)
    assert [(one.epoch, one.seq) for one in newest] == [(5, 3), (5, 4), (2**50, 5), (4, 6)]


class Copy:
    """What the lake holds of a ledger."""

    def __init__(self, held: dict[int, int], *, takeover: bool = False) -> None:
        self.held, self._takeover = held, takeover

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
        ({}, Copy({}, takeover=True), "took another mirror over"),
        ({0: record(0, 2**40, 3)}, Copy({}), "epoch 1099511627776"),
    ],
)
def test_law_f_a_ledger_that_lacks_something_is_refused_and_one_that_is_whole_is_not_restored(
    last: dict[int, LedgerRecord | None], copy: Copy, refused: str
) -> None:
    flow = FlowConfig(source="east", target="central", topics="t")

    def start(*, restore: bool) -> Start:
        return Start(None, flow, copy, restore=restore)  # type: ignore[arg-type]

    if not refused:
        start(restore=False).check(last)
        with pytest.raises(SafetyError, match="lacks nothing"):
            start(restore=True).check(last)
        return
    with pytest.raises(SafetyError, match=refused) as error:
        start(restore=False).check(last)
    assert error.value.exit_code == 3
    assert "--restore-ledger" in error.value.remedy
    start(restore=True).check(last)
