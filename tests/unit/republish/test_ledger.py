"""The ledger record reads back as it was written, and refuses what is none."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.errors import SafetyError
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.epochs import EPOCHS, is_possible, next_epoch, table_version
from mirrorlake.model.flow import SourcePartition, TopicPartition, kafka_name, ledger_topic, transactional_id
from mirrorlake.model.ledger import Claim, FlowOrigin, LedgerRecord, supersedes
from mirrorlake.model.offset_map import Run
from mirrorlake.model.remotes import Remote
from mirrorlake.republish.start import check_ledger, check_origin
from tests.builders import ledger_record, run, run_over

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
sources = st.builds(SourcePartition, topics, st.integers(1, 9), st.integers(0, 500))


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
    origin=st.none() | st.builds(FlowOrigin, topics, topics, topics, st.booleans()),
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
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
        positions=st.dictionaries(sources, st.integers(0, 2**60), max_size=8),
        runs=st.lists(runs(), max_size=4).map(tuple),
        committed_at_ms=st.integers(0, 2**45),
    )
)
def test_law_f_a_record_reads_back_as_it_was_written(record: LedgerRecord) -> None:
    assert LedgerRecord.from_json(record.to_json()) == record


# As releases before 2 of the format wrote it; the first of them did not say what the flow carried.
OLD = (
    b'{"v":1,"flow":"east->central","lane":1,"lanes":2,"epoch":1763800000,"owner":"8f1c","seq":41,"checkpoint":3,"batch":17,'
    b'%s"positions":[["orders",1,0,120]],"runs":[["orders",1,0,"east.orders",0,100,119,250,18,[5,2]]],"at":1763800123456,'
    b'"withheld":[["orders",1,0,"filtered","small","1a2b3c4d","",105,[0,2]]],"view":"77aa",'
    b'"remotes":{"orders":["east.orders","x1"]}}'
)


@pytest.mark.parametrize(
    ("carried", "scope"),
    [
        (b'"carried":"1f0c pay refunds",', CheckpointScope("1f0c", frozenset({"pay", "refunds"}))),
        (b"", CheckpointScope()),
    ],
)
def test_a_record_of_an_older_release_is_read(carried: bytes, scope: CheckpointScope) -> None:
    record = LedgerRecord.from_json(OLD % carried)
    claim = Claim(
        flow="east->central",
        lane=1,
        lanes=2,
        epoch=1763800000,
        owner="8f1c",
        checkpoint_location=3,
        batch=17,
        scope=scope,
    )
    orders = SourcePartition("orders", 1, 0)
    assert (record.claim, record.seq, record.committed_at_ms) == (claim, 41, 1763800123456)
    assert (record.positions, record.view) == ({orders: 120}, "77aa")
    assert record.remotes == {"orders": Remote("east.orders", "x1")}
    [run], [item] = record.runs, record.withheld
    assert (run.first_upstream, run.last_upstream, run.first_downstream, run.count) == (100, 119, 250, 18)
    assert run.holes == item.ranges == ((105, 2),)
    assert LedgerRecord.from_json(record.to_json()) == record
    assert not CheckpointScope("1f0c").continues(record.claim.scope), "what it does not say is not taken for granted"


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
    assert [(one.claim.epoch, one.seq) for one in newest] == [(5, 3), (5, 4), (2**50, 5), (4, 6)]


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

    def check(*, restore: bool) -> None:
        check_ledger(flow, last, copy, restore=restore)  # type: ignore[arg-type]

    if not refused:
        check(restore=False)
        with pytest.raises(SafetyError, match="lacks nothing"):
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
    [("1", "2", True), ("1", "1", False), ("", "2", False), ("1", "", False), (None, "2", False)],
)
def test_law_e_a_ledger_of_another_source_cluster_is_not_gone_on_in(
    before: str | None, now: str, *, is_refused: bool
) -> None:
    flow = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "orders"})
    last = {0: ledger_record(origin=None if before is None else FlowOrigin("east", "central", before)), 1: None}
    if not is_refused:
        check_origin(flow, last, FlowOrigin("east", "central", now))
        return
    with pytest.raises(SafetyError, match="from cluster 1, and east is cluster 2"):
        check_origin(flow, last, FlowOrigin("east", "central", now))
