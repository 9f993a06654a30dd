"""What must be refused rather than guessed: lost checkpoint locations, lost source records, lost ledgers, reborn topics."""

from __future__ import annotations

import json
from datetime import datetime, tzinfo

import pytest
from pyspark.sql import DataFrame

from mirrorlake.crash_points import acting
from mirrorlake.errors import LedgerLost, SafetyError, StoreError
from mirrorlake.mirror import Mirror
from mirrorlake.model.lanes import lane_of
from mirrorlake.republish import fencing as ownership
from mirrorlake.republish.republisher import Republisher
from tests.kit.deaths import dying
from tests.kit.records import consume, delete_records, delete_topic, end_of
from tests.servers.lakes import Pair

FLOW = "east->central"


def assert_mirrored(mirror: Mirror, pair: Pair) -> None:
    pair.check(with_map=True)
    assert all(one.equal for one in mirror.verify())


@pytest.mark.law("C", "D", "F")
def test_law_f_owners_die_and_the_ledger_loses_a_lane(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.create(partitions=4)
    two = pair.mirror(lanes=2, execution="streaming")
    for seed, count in ((1, 400), (2, 40)):
        pair.produce(count, seed=seed)
        two.land("east", once=True)

    # In the first batch of a new checkpoint location.
    batches: list[int] = []
    send_batch = Republisher._republish_batch

    def counting(self: Republisher, frame: DataFrame, batch_id: int) -> None:
        batches.append(frame.count())
        if len(batches) == 1:
            raise RuntimeError("the process ends here")
        send_batch(self, frame, batch_id)

    monkeypatch.setattr(Republisher, "_republish_batch", counting)
    with pytest.raises(StoreError):
        two.republish(FLOW, once=True)
    two.republish(FLOW, once=True)
    assert batches == [40, 40], "the next start begins where the backfill ended, not at the relay's first version"
    monkeypatch.setattr(Republisher, "_republish_batch", send_batch)
    pair.check(with_map=True)

    # Between two claims, while the lanes become more.
    pair.produce(40, seed=3)
    four = pair.mirror(lanes=4)
    four.land("east", once=True)
    with dying("send.claimed"):
        four.republish(FLOW, once=True)

    # The next owner's clock is ahead; those that follow it have the right one.
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime(2090, 1, 1, tzinfo=tz)

    with monkeypatch.context() as patch:
        patch.setattr(ownership, "datetime", Clock)
        four.republish(FLOW, once=True, rebuild_checkpoint=True)
    pair.check(with_map=True)

    # After a chunk was confirmed and before the lake knew it; then a lane of the ledger is lost.
    with pytest.raises(SafetyError, match="without --restore-ledger") as refused:
        four.republish(FLOW, once=True, restore_ledger=True)
    assert refused.value.exit_code == 3

    pair.produce(40, seed=4, partitions=1)
    four.land("east", once=True)
    with acting("ledger.copying", lambda: 1 // 0), pytest.raises(StoreError):
        four.republish(FLOW, once=True)
    ledger, lane = "mirrorlake.east.central.ledger", lane_of(pair.topic, 1, lanes=4)
    delete_records(pair.central, ledger, lane, end_of(pair.central, ledger, lane))
    with pytest.raises(LedgerLost, match=f"lane {lane} .* holds nothing.*--restore-ledger") as lost:
        four.republish(FLOW, once=True)
    assert lost.value.exit_code == 3
    four.republish(FLOW, once=True, restore_ledger=True)
    pair.check(with_map=True)

    # The whole ledger.
    delete_topic(pair.central, ledger)
    pair.produce(40, seed=5)
    four.land("east", once=True)
    with pytest.raises(LedgerLost, match="--restore-ledger"):
        four.republish(FLOW, once=True)
    four.republish(FLOW, once=True, restore_ledger=True)

    # The last full record of a lane: what moved since stands there.
    pair.produce(40, seed=6, partitions=1)
    two = pair.mirror(lanes=2)
    two.run(once=True)
    lane = lane_of(pair.topic, 0, lanes=2)
    whole, part = consume(pair.central, ledger)[lane]
    assert ["full" in json.loads(one.value or b"") for one in (whole, part)] == [False, True]
    delete_records(pair.central, ledger, lane, part.offset)
    assert "lacks its last full record" in str(two.status())
    with pytest.raises(LedgerLost, match=f"lane {lane} .* lacks its last full record .*--restore-ledger"):
        two.republish(FLOW, once=True)
    two.republish(FLOW, once=True, restore_ledger=True)
    # Nothing was due: only claims are left.
    left = [json.loads(one.value or b"") for several in consume(pair.central, ledger).values() for one in several]
    assert [("full" in one, one["runs"]) for one in left] == [(False, [])] * 4
    assert_mirrored(two, pair)
