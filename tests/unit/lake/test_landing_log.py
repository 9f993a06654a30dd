"""A live lander writes the relay's log by itself: what it writes is Delta, and its fences are those of delta-rs' commits."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError

from mirrorlake.crash_points import acting
from mirrorlake.errors import LanderReplaced
from mirrorlake.lake import LandingCommit, LandingLog, RelayClaim, RelayLog, landing_log
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY, CLAIM, app_id, txn_version
from mirrorlake.lake.landing_progress import landing_history
from mirrorlake.model.flow import SourcePartition
from tests.kit.lake import LANDED_AT, rows
from tests.unit.lake.kit import Relay, written

APP = app_id("east")


class SharedRelay(Relay):
    """A relay in a folder, as landers share it."""

    def claim(self, number: int, owner: str = "me") -> RelayClaim:
        self.tables.set_properties(self.path, {CHECKPOINT_PROPERTY: str(number)})
        return self.sign(number, owner)

    def sign(self, number: int, owner: str = "me") -> RelayClaim:
        signed = LandingCommit(number, CLAIM, owner).to_text()
        self.tables.commit(self.path, [], app_id=APP, version=txn_version(number, CLAIM), signature=signed)
        return RelayClaim("east", self.path, number, owner)

    def group(self, seat: RelayClaim, group: int) -> LandingLog:
        return LandingLog(replace(seat, group=group, as_of=DeltaTable(self.path).version()))

    def leave_to_delta_rs(self) -> None:
        DeltaTable(self.path).alter.add_feature(TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)

    def append(self, log: LandingLog, number: int, *offsets: int) -> None:
        log.append(written(self.path, rows("orders", 0, *offsets)), number, LANDED_AT)

    def by_another(self, offset: int) -> None:
        files = written(self.path, rows("clicks", 0, offset))
        self.tables.commit(self.path, files, app_id="other", version=offset, signature="")


@pytest.fixture
def relay(tmp_path: Path) -> SharedRelay:
    return SharedRelay(tmp_path)


def test_batches_are_commits_that_everybody_reads(relay: SharedRelay) -> None:
    log, follower = LandingLog(relay.claim(1)), RelayLog(relay.tables, relay.path)
    follower.files({})
    for number in (1, 2):
        relay.append(log, number, number * 10, number * 10 + 1)
        relay.by_another(number)
    assert relay.offsets() == [10, 11, 20, 21]
    assert [file.first_offset for file in follower.new_files({})] == [10, 1, 20, 2]
    table = DeltaTable(relay.path)
    assert table.transaction_version(APP) == txn_version(1, 2)
    assert table.history(2)[1]["userMetadata"] == LandingCommit(1, 2, "me", LANDED_AT).to_text()
    assert not list(Path(relay.path, "_delta_log").glob(".*")), "nothing is left of how a file is made"


@pytest.mark.law("F")
def test_law_f_a_batch_lands_past_a_commit_that_came_in_the_same_moment(
    relay: SharedRelay,
) -> None:
    log = LandingLog(relay.claim(1))
    with acting("commit.prepared", lambda: relay.by_another(7)):
        relay.append(log, 1, 1, 2)
    relay.append(log, 2, 3)
    assert relay.offsets() == [1, 2, 3]
    assert len(DeltaTable(relay.path).file_uris()) == 3, "and the other's file is in"


@pytest.mark.law("F")
def test_law_f_who_is_being_replaced_stops_after_the_batch_that_its_heir_will_see(
    relay: SharedRelay,
) -> None:
    log = LandingLog(relay.claim(1))
    lose = partial(relay.tables.set_properties, relay.path, {CHECKPOINT_PROPERTY: "2"})
    with acting("commit.made", lose), pytest.raises(LanderReplaced):
        relay.append(log, 1, 1)
    assert relay.offsets() == [1]


@pytest.mark.law("F")
@pytest.mark.parametrize("claim", ["claim", "sign"])
def test_law_f_a_driver_hears_what_its_task_landed_and_that_it_was_replaced(relay: SharedRelay, claim: str) -> None:
    seat = relay.claim(1)
    driver, task = LandingLog(seat), LandingLog(seat)
    assert driver.newest_landed_at() is None
    relay.append(task, 1, 1)
    relay.by_another(1)
    assert driver.newest_landed_at() == LandingLog(seat).newest_landed_at() == LANDED_AT
    getattr(relay, claim)(2, "heir")
    with pytest.raises(LanderReplaced):
        driver.newest_landed_at()


@pytest.mark.law("F")
def test_law_f_a_number_is_good_for_one_run(relay: SharedRelay) -> None:
    seat = relay.claim(3)
    first = LandingLog(seat)
    assert not first.has_begun
    relay.append(first, 1, 1)
    again = LandingLog(seat)
    assert again.has_begun, "a task that Spark starts again would begin before what the first one landed"
    with pytest.raises(LanderReplaced):
        relay.append(again, 1, 1, 2, 3)
    assert again.is_newest, "the other is an attempt of the same task, and no lander"
    assert relay.offsets() == [1]


@pytest.mark.parametrize("is_stored", [False, True], ids=["folder", "as on a store"])
def test_where_the_log_was_cleaned_up_the_table_is_read_again(relay: SharedRelay, is_stored: bool) -> None:
    log = LandingLog(relay.claim(1))
    log._is_stored = is_stored
    relay.append(log, 1, 1)
    relay.by_another(1)
    relay.by_another(2)
    DeltaTable(relay.path).create_checkpoint()
    newest = DeltaTable(relay.path).version()
    # delta-rs goes on from a commit only.
    for version in range(newest if is_stored else newest + 1):
        Path(relay.path, "_delta_log", f"{version:020}.json").unlink()
    for number in (2, 3):
        relay.append(log, number, number)
    assert relay.offsets() == [1, 2, 3]
    assert DeltaTable(relay.path).version() == newest + 2, "no hole in the past was filled"


def test_a_table_with_features_of_its_own_is_left_to_delta_rs(relay: SharedRelay) -> None:
    log = LandingLog(relay.claim(1))
    relay.append(log, 1, 1)
    relay.leave_to_delta_rs()
    relay.append(log, 2, 2)
    assert relay.offsets() == [1, 2]
    [newest] = DeltaTable(relay.path).history(1)
    assert newest["engineInfo"].startswith("delta-rs")


def test_the_log_gets_its_checkpoints(relay: SharedRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "log_checkpoint_commits=3")
    log = LandingLog(relay.claim(1))
    for number in range(1, 5):
        relay.append(log, number, number)
    log._checkpointing.join()
    assert json.loads(Path(relay.path, "_delta_log", "_last_checkpoint").read_text())["version"] >= 3
    assert relay.offsets() == [1, 2, 3, 4]


@pytest.fixture(params=[False, True], ids=["file of the log", "delta-rs"])
def either(relay: SharedRelay, request: pytest.FixtureRequest) -> SharedRelay:
    """A relay whose commits are files that we link, and one that is left to delta-rs, as every object store is."""
    if request.param:
        relay.leave_to_delta_rs()
    return relay


@pytest.mark.law("E", "F")
def test_law_f_batches_of_two_groups_follow_one_another_whatever_their_clocks_say(either: SharedRelay) -> None:
    seat = either.claim(1)
    first, second = either.group(seat, 0), either.group(seat, 1)
    rows_of = [written(either.path, rows("orders", 0, n)) for n in range(4)]
    signed = [
        first.append(rows_of[0], 1, LANDED_AT),
        second.append(rows_of[1], 1, LANDED_AT - timedelta(hours=1)),
        second.append([], 2, LANDED_AT - timedelta(hours=1), {}),
        first.append(rows_of[2], 2, LANDED_AT + timedelta(seconds=1)),
        second.append(rows_of[3], 3, LANDED_AT),
    ]
    assert [one.batch for one in signed] == [0, 1, 2, 3, 4]
    times = [one.landed_at for one in signed if one.landed_at]
    assert times == sorted(times)
    assert [times[1] == times[2], len({*times})] == [True, 4], "each batch with records has a time after all before"
    assert either.offsets() == [0, 1, 2, 3]
    assert LandingLog(seat).newest_landed_at() == times[-1]
    assert [LandingLog(replace(seat, group=group)).has_begun for group in (0, 1, 2)] == [True, True, False]


@pytest.mark.law("F")
@pytest.mark.parametrize("group", [None, 0, 1])
@pytest.mark.parametrize("claim", ["claim", "sign"])
@pytest.mark.parametrize("moment", ["before", "during"])
def test_law_f_a_task_of_an_older_lander_writes_nothing_whatever_its_group(
    either: SharedRelay, moment: str, claim: str, group: int | None
) -> None:
    seat = either.claim(1)
    zombie = LandingLog(seat) if group is None else either.group(seat, group)
    either.append(zombie, 1, 1)
    # A property that a sleeper has set back says nothing: the claim's transaction stands all the same.
    replacing = partial(getattr(either, claim), 2, "heir")
    heir = replacing() if moment == "before" else None
    with acting("commit.prepared", replacing) if heir is None else nullcontext(), pytest.raises(LanderReplaced):
        either.append(zombie, 2, 2)
    assert not zombie.is_newest
    if heir is not None and claim == "claim":
        # The heir has one group fewer, and a sleeper sets the number back: the zombie's own id has seen no other number.
        either.append(either.group(heir, 0), 1, 3)
        either.tables.set_properties(either.path, {CHECKPOINT_PROPERTY: "1"})
        with pytest.raises(LanderReplaced):
            either.append(LandingLog(zombie._relay_claim), 2, 2)
    assert 2 not in either.offsets()


@pytest.mark.law("F")
@pytest.mark.parametrize("group", [None, 0, 1])
@pytest.mark.parametrize("claim", ["claim", "sign"])
def test_law_f_delta_rs_does_not_append_after_a_claim_that_it_has_read_and_the_task_has_not(
    relay: SharedRelay, group: int | None, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay.leave_to_delta_rs()
    zombie = LandingLog(replace(relay.claim(1), group=group))

    def open_late(path: str) -> DeltaTable:
        getattr(relay, claim)(2, "heir")
        return DeltaTable(path)

    monkeypatch.setattr(landing_log, "open_table", open_late)
    with pytest.raises(LanderReplaced):
        relay.append(zombie, 1, 1)
    assert relay.offsets() == []


@pytest.mark.law("F")
@pytest.mark.parametrize("error", [CommitFailedError, DeltaError])
def test_law_f_a_commit_whose_answer_was_lost_is_not_written_again(relay: SharedRelay, error: type[DeltaError]) -> None:
    relay.leave_to_delta_rs()
    seat = relay.claim(1)
    mine, other = relay.group(seat, 0), relay.group(seat, 1)

    def lose() -> None:
        relay.append(other, 1, 7)
        raise error("the store did not answer")

    with acting("commit.made", lose):
        relay.append(mine, 1, 1)
    relay.append(mine, 2, 2)
    assert relay.offsets() == [1, 2, 7]
    newest = DeltaTable(relay.path).history(3)
    assert [json.loads(one["userMetadata"])["batch"] for one in newest] == [2, 1, 0]


@pytest.mark.law("F")
def test_law_f_two_attempts_of_one_group_are_told_apart_and_two_groups_are_not(either: SharedRelay) -> None:
    seat = either.claim(1)
    attempts, other = [either.group(seat, 0), either.group(seat, 0)], either.group(seat, 1)
    either.append(attempts[0], 1, 1)
    either.append(other, 1, 7)
    with pytest.raises(LanderReplaced):
        either.append(attempts[1], 1, 1, 2)
    assert attempts[1].is_newest
    either.append(attempts[0], 2, 2)
    assert either.offsets() == [1, 2, 7]


@pytest.mark.law("E", "F")
def test_law_e_a_whole_record_of_one_group_says_what_the_others_have_read(either: SharedRelay) -> None:
    mine, idle = (SourcePartition("orders", 1, partition) for partition in range(2))
    seat, start = either.claim(1), {mine: 0, idle: 0}
    busy, silent = either.group(seat, 0), either.group(seat, 1)
    silent.append([], 1, None, start, is_whole=True)
    busy.append([], 1, None, start, is_whole=True)
    silent.append([], 2, None, {idle: 5})
    # It is silent from now on, and what it said lies far back.
    for number in range(2, 25):
        busy.append(
            [], number, None, {mine: number, **({idle: 0} if number % 8 == 0 else {})}, is_whole=number % 8 == 0
        )
    assert landing_history(either.lake, either.path).read_to == {mine: 24, idle: 5}
    newest = DeltaTable(either.path).history(1)[0]
    assert json.loads(newest["userMetadata"])["as_of"] == newest["version"] - 1

    silent.append([], 3, None, {idle: 9})
    DeltaTable(either.path).create_checkpoint()
    for version in range(newest["version"] + 1):
        Path(either.path, "_delta_log", f"{version:020}.json").unlink()
    late = LandingLog(replace(seat, group=2, as_of=newest["version"] - 1))
    assert late.append([], 1, None, start, is_whole=True).as_of is None, "what it missed is cleaned up"
