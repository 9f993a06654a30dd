"""A live lander writes the relay's log by itself: what it writes is Delta, and its fences are those of delta-rs' commits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, TableFeatures

from mirrorlake.errors import LanderReplaced
from mirrorlake.lake import landing_log
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.landing_commits import CHECKPOINT_PROPERTY, CLAIM, Seat, Signed, app_id, txn_version
from mirrorlake.lake.landing_log import LandingLog
from mirrorlake.lake.log_commits import put_commit
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.relay_writer import write_files
from mirrorlake.lake.schema import RELAY
from tests.unit.lake.test_relay_writer import NOON, SCHEMA, batch, rows

APP = app_id("east")


class Relay:
    """A relay in a folder, as landers share it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.tables = FolderTables()
        self.tables.create(self.path, RELAY)

    def claim(self, number: int, owner: str = "me") -> Seat:
        self.tables.set_properties(self.path, {CHECKPOINT_PROPERTY: str(number)})
        return self.sign(number, owner)

    def sign(self, number: int, owner: str = "me") -> Seat:
        signed = Signed(number, CLAIM, owner).to_text()
        self.tables.commit(self.path, [], app_id=APP, version=txn_version(number, CLAIM), signature=signed)
        return Seat("east", self.path, number, owner)

    def land(self, log: LandingLog, number: int, *offsets: int) -> None:
        log.append(list(write_files(self.path, SCHEMA, iter([batch(rows("orders", 0, *offsets))]))), number, NOON)

    def by_another(self, offset: int) -> None:
        files = list(write_files(self.path, SCHEMA, iter([batch(rows("clicks", 0, offset))])))
        self.tables.commit(self.path, files, app_id="other", version=offset, signature="")

    @property
    def offsets(self) -> list[int]:
        table = DeltaTable(self.path).to_pyarrow_table(columns=["topic", "offset"]).to_pylist()
        return sorted(row["offset"] for row in table if row["topic"] == "orders")


@pytest.fixture
def relay(tmp_path: Path) -> Relay:
    return Relay(tmp_path)


@pytest.fixture
def before_link(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Have something happen in the moment before a file of the log is made; once."""
    link = os.link

    def arrange(happens: Callable[[], Any]) -> None:
        waiting = [happens]

        def late(*names: Any) -> None:
            while waiting:
                waiting.pop()()
            link(*names)

        monkeypatch.setattr("mirrorlake.lake.log_commits.os.link", late)

    return arrange


def test_batches_are_commits_that_everybody_reads(relay: Relay) -> None:
    log, follower = LandingLog(relay.claim(1)), RelayLog(relay.tables, relay.path)
    follower.files({})
    for number in (1, 2):
        relay.land(log, number, number * 10, number * 10 + 1)
        relay.by_another(number)
    assert relay.offsets == [10, 11, 20, 21]
    assert [file.first_offset for file in follower.new_files({})] == [10, 1, 20, 2]
    table = DeltaTable(relay.path)
    assert table.transaction_version(APP) == txn_version(1, 2)
    assert table.history(2)[1]["userMetadata"] == Signed(1, 2, "me", NOON).to_text()
    assert not list(Path(relay.path, "_delta_log").glob(".*")), "nothing is left of how a file is made"


@pytest.mark.law("F")
def test_law_f_a_batch_lands_past_a_commit_that_came_in_the_same_moment(
    relay: Relay, before_link: Callable[[Callable[[], Any]], None]
) -> None:
    log = LandingLog(relay.claim(1))
    before_link(lambda: relay.by_another(7))
    relay.land(log, 1, 1, 2)
    relay.land(log, 2, 3)
    assert relay.offsets == [1, 2, 3]
    assert len(DeltaTable(relay.path).file_uris()) == 3, "and the other's file is in"


@pytest.mark.law("F")
@pytest.mark.parametrize("claim", ["claim", "sign"])
@pytest.mark.parametrize("moment", ["before", "during"])
def test_law_f_who_was_replaced_writes_nothing(
    relay: Relay, before_link: Callable[[Callable[[], Any]], None], claim: str, moment: str
) -> None:
    log = LandingLog(relay.claim(1))
    relay.land(log, 1, 1)
    # A property that a sleeper has set back says nothing: the claim's transaction stands all the same.
    if moment == "before":
        getattr(relay, claim)(2, "heir")
    else:
        before_link(lambda: getattr(relay, claim)(2, "heir"))
    with pytest.raises(LanderReplaced):
        relay.land(log, 2, 2)
    assert not log.is_newest
    assert relay.offsets == [1]


@pytest.mark.law("F")
def test_law_f_who_is_being_replaced_stops_after_the_batch_that_its_heir_will_see(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LandingLog(relay.claim(1))

    def put_and_lose(*commit: Any) -> bool:
        is_put = put_commit(*commit)
        relay.tables.set_properties(relay.path, {CHECKPOINT_PROPERTY: "2"})
        return is_put

    monkeypatch.setattr(landing_log, "put_commit", put_and_lose)
    with pytest.raises(LanderReplaced):
        relay.land(log, 1, 1)
    assert relay.offsets == [1]


@pytest.mark.law("F")
@pytest.mark.parametrize("claim", ["claim", "sign"])
def test_law_f_a_driver_hears_what_its_task_landed_and_that_it_was_replaced(relay: Relay, claim: str) -> None:
    seat = relay.claim(1)
    driver, task = LandingLog(seat), LandingLog(seat)
    assert driver.newest_landed_at() is None
    relay.land(task, 1, 1)
    relay.by_another(1)
    assert driver.newest_landed_at() == LandingLog(seat).newest_landed_at() == NOON
    getattr(relay, claim)(2, "heir")
    with pytest.raises(LanderReplaced):
        driver.newest_landed_at()


@pytest.mark.law("F")
def test_law_f_a_number_is_good_for_one_run(relay: Relay) -> None:
    seat = relay.claim(3)
    first = LandingLog(seat)
    assert not first.has_begun
    relay.land(first, 1, 1)
    again = LandingLog(seat)
    assert again.has_begun, "a task that Spark starts again would begin before what the first one landed"
    with pytest.raises(LanderReplaced):
        relay.land(again, 1, 1, 2, 3)
    assert again.is_newest, "the other is an attempt of the same task, and no lander"
    assert relay.offsets == [1]


def test_where_the_log_was_cleaned_up_the_table_is_read_again(relay: Relay) -> None:
    log = LandingLog(relay.claim(1))
    relay.land(log, 1, 1)
    relay.by_another(1)
    DeltaTable(relay.path).create_checkpoint()
    newest = DeltaTable(relay.path).version()
    for version in range(newest + 1):
        Path(relay.path, "_delta_log", f"{version:020}.json").unlink()
    for number in (2, 3):
        relay.land(log, number, number)
    assert relay.offsets == [1, 2, 3]
    assert DeltaTable(relay.path).version() == newest + 2, "no hole in the past was filled"


def test_a_table_with_features_of_its_own_is_left_to_delta_rs(relay: Relay) -> None:
    log = LandingLog(relay.claim(1))
    relay.land(log, 1, 1)
    DeltaTable(relay.path).alter.add_feature(TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)
    relay.land(log, 2, 2)
    assert relay.offsets == [1, 2]
    [newest] = DeltaTable(relay.path).history(1)
    assert newest["engineInfo"].startswith("delta-rs")


def test_the_log_gets_its_checkpoints(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing_log, "CHECKPOINT_EVERY", 3)
    log = LandingLog(relay.claim(1))
    for number in range(1, 5):
        relay.land(log, number, number)
    log._checkpointing.join()
    last = json.loads(Path(relay.path, "_delta_log", "_last_checkpoint").read_text())
    assert last["version"] >= 3
    assert relay.offsets == [1, 2, 3, 4]
