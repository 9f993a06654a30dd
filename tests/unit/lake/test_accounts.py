"""Accounts of what was landed, and how far landing is, by the log of a relay in a folder: no row of it is read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from mirrorlake.lake import (
    KnownTopic,
    LandedPositions,
    OffsetAccounts,
    accounts,
    landed_positions,
    relay_files,
    summarize_landed_after,
    update_landed_positions,
)
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.gaps import Gap
from tests.kit.lake import LANDED_AT, rows
from tests.unit.lake.kit import Relay

AT = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)


def of_kafka(row: dict[str, Any]) -> datetime:
    """Cut a time to milliseconds: Kafka's records have no more."""
    stamp: datetime = row["timestamp"]
    return stamp.replace(microsecond=stamp.microsecond // 1000 * 1000)


class World(Relay):
    """A relay in a folder, and an account of it."""

    def __init__(self, path: Path, *, reads: bool) -> None:
        super().__init__(path)
        if reads:
            self.lake.relay_log = lambda _: None  # as on a catalog

    def account(self) -> OffsetAccounts:
        known: Any = SimpleNamespace(
            known={
                topic: KnownTopic(name=topic, configs={"cleanup.policy": policy})
                for topic, policy in (("orders", "delete"), ("prices", "compact,delete"), ("clicks" * 9, "delete"))
            },
            default_cleanup="",
        )
        found = OffsetAccounts(self.lake, known, alias="east", now=lambda: AT)
        found.resume(landed_positions(self.lake, "east"), [])
        return found

    def land_next(self, *several: list[dict[str, Any]]) -> datetime:
        at = AT + timedelta(seconds=self.batches + 1)
        self.turn(*([row | {"landed_at": at, "timestamp": of_kafka(row)} for row in some] for some in several))
        return at

    def told(self) -> list[list[Any]]:
        texts = (
            "SELECT topic, partition, kind, first_offset, last_offset, missing FROM {gaps} ORDER BY ALL",
            "SELECT topic, partition, position, record_timestamp FROM {positions} ORDER BY ALL",
        )
        return [[tuple(vars(row).values()) for row in self.lake.query(text)] for text in texts]


def lived(world: World) -> int:
    """Land with holes, settle now and then, die once with a batch that is not accounted for, and go on after upkeep."""
    account = world.account()
    account.flush_accounts(
        world.land_next(rows("orders", 0, 0, 1, 2), rows("orders", 1, 3, 4), rows("prices", 0, 5, 9))
    )
    world.land_next(rows("orders", 0, 4, 5))
    world.land_next()
    account.flush_accounts(world.land_next(rows("orders", 0, 6, 9), rows("clicks" * 9, 0, 0, 1)))
    world.land_next(rows("orders", 0, 11, 12))
    DeltaTable(world.path).optimize.compact()
    again = world.account()
    again.flush_accounts(world.land_next(rows("orders", 0, 14), rows("orders", 1, 5)))
    again.flush_accounts(world.land_next(rows("orders", 1, 8)))
    return account.records + again.records


@pytest.mark.law("E")
def test_law_e_files_tell_what_rows_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows, by_files = World(tmp_path / "rows", reads=True), World(tmp_path / "files", reads=False)
    assert lived(by_rows) == 18
    reads: list[Any] = []
    monkeypatch.setattr(relay_files, "open_address", lambda uri: pytest.fail(f"{uri} was opened"))

    def counted(*asked: Any) -> list[Any]:
        reads.append(asked)
        return summarize_landed_after(*asked)

    monkeypatch.setattr(accounts, "summarize_landed_after", counted)
    assert lived(by_files) == 18
    assert by_files.told() == by_rows.told(), "law E: files tell another story than rows"
    gaps, positions = by_files.told()
    assert ("orders", 0, "transactional", 3, 9, 3) in gaps
    assert ("prices", 0, "compacted", 0, 9, 8) in gaps
    newest = of_kafka({"timestamp": LANDED_AT - timedelta(seconds=8)})
    assert ("orders", 1, 9, newest) in positions, "timestamps to the millisecond"
    assert len(reads) == 1, "rows are read where a file was rewritten, and nowhere else"


@pytest.mark.law("E")
def test_law_e_a_file_that_lies_on_both_sides_of_the_account_is_read(tmp_path: Path) -> None:
    world = World(tmp_path, reads=False)
    world.account().flush_accounts(world.land_next(rows("orders", 0, 0, 1, 2)))
    world.land_next(rows("orders", 0, 4, 5))
    DeltaTable(world.path).optimize.compact()
    again = world.account()
    again.flush_accounts(world.land_next(rows("orders", 0, 6)))
    assert again.records == 3, "law E: records that were accounted for count again, and hide the hole"
    assert world.told()[0] == [("orders", 0, "transactional", 3, 6, 1)]


@pytest.mark.law("E", "F")
@pytest.mark.parametrize(
    ("fails", "survives"), [("append", True), ("write_positions", True), ("write_positions", False)]
)
def test_law_f_an_account_that_fails_is_settled_by_the_next_and_explains_no_offset_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, survives: bool
) -> None:
    world = World(tmp_path, reads=fails == "append")
    account = world.account()
    account.flush_accounts(world.land_next(rows("orders", 0, 0, 1, 2)))
    for landed in ((4, 5), (8,)):
        at = world.land_next(rows("orders", 0, *landed))
        with monkeypatch.context() as store:
            place = world.lake if fails == "append" else account
            store.setattr(place, fails, lambda *given, **_: given[-1] and pytest.fail("the store is away"))
            with pytest.raises(pytest.fail.Exception):
                account.flush_accounts(at)
        account = account if survives else world.account()
    account.flush_accounts(world.land_next(rows("orders", 0, 9), rows("orders", 1, 2)))
    gaps, positions = world.told()
    explained = [(3, 9, 3)] if fails == "append" else [(3, 5, 1), (6, 8, 2)]
    expected = [*(("orders", 0, *gap) for gap in explained), ("orders", 1, 0, 2, 2)]
    assert [gap[:2] + gap[3:] for gap in gaps] == expected, "law F: offsets 3, 6 and 7 are explained once each"
    assert max(position for _, _, position, _ in positions) == 10
    account.flush_accounts(world.land_next(rows("orders", 0, 12)))
    assert len(world.told()[0]) == len(expected) + 1


@pytest.mark.law("E", "F")
def test_law_f_what_a_start_found_and_wrote_before_it_died_is_not_written_again(tmp_path: Path) -> None:
    world, orders = World(tmp_path, reads=False), SourcePartition("orders", 1, 0)

    def lost(kind: str, first: int, last: int) -> Gap:
        return Gap(source=orders, first_offset=first, last_offset=last, missing=max(0, last + 1 - first), kind=kind)

    for last in (9, 9, 14):
        world.account().record_new_gaps([lost("expired", 5, last), lost("recreated", 20, -1)])
    assert [gap[2:] for gap in world.told()[0]] == [
        ("expired", 5, 9, 5),
        ("expired", 10, 14, 5),
        ("recreated", 20, -1, 0),
    ], "law F: each offset once"


MINE, BESIDE = SourcePartition("orders", 1, 0), SourcePartition("orders", 1, 1)


def looked(world: World) -> list[dict[SourcePartition, int]]:
    """Look again and again: at nothing, at what is not accounted for, at what came since, and after upkeep."""
    seen: list[LandedPositions] = [landed_positions(world.lake, "east")]

    def look() -> None:
        seen.append(update_landed_positions(world.lake, "east", seen[-1]))

    account = world.account()
    account.flush_accounts(world.land_next(rows("orders", 0, 0, 1), rows("orders", 1, 4)))
    look()
    world.land_next(rows("orders", 0, 5))
    world.land_next(rows("orders", 0, 7), rows("clicks" * 9, 3, 2))
    look()
    look()
    DeltaTable(world.path).optimize.compact()
    world.land_next(rows("orders", 1, 9))
    look()
    seen.append(landed_positions(world.lake, "east"))
    return [dict(one.reached) for one in seen]


def test_files_tell_how_far_landing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows = looked(World(tmp_path / "rows", reads=True))
    monkeypatch.setattr(relay_files, "open_address", lambda uri: pytest.fail(f"{uri} was opened"))
    world = World(tmp_path / "files", reads=False)
    assert looked(world) == by_rows
    assert by_rows[1] == {MINE: 2, BESIDE: 5}
    assert by_rows[-1][MINE] == 8
    assert by_rows[-1][BESIDE] == 10
    known = landed_positions(world.lake, "east")
    monkeypatch.setattr(world.lake, "relay_log", lambda _: pytest.fail("the files were listed again"))
    world.land_next(rows("orders", 1, 10))
    assert update_landed_positions(world.lake, "east", known).reached[BESIDE] == 11
