"""How far landing is, by the log of a relay in a folder: the same as by its rows, and no file is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from mirrorlake.lake import LandedPositions, landed_positions, relay_files, update_landed_positions
from mirrorlake.model.flow import SourcePartition
from tests.lakes import rows
from tests.unit.lake.test_accounts import World

ORDERS, OTHERS = SourcePartition("orders", 1, 0), SourcePartition("orders", 1, 1)


def lived(world: World) -> list[dict[SourcePartition, int]]:
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
    by_rows = lived(World(tmp_path / "rows", reads=True))
    monkeypatch.setattr(relay_files, "open_address", lambda uri: pytest.fail(f"{uri} was opened"))
    world = World(tmp_path / "files", reads=False)
    assert lived(world) == by_rows
    assert by_rows[1] == {ORDERS: 2, OTHERS: 5}
    assert by_rows[-1][ORDERS] == 8
    assert by_rows[-1][OTHERS] == 10
    known = landed_positions(world.lake, "east")
    monkeypatch.setattr(world.lake, "relay_log", lambda _: pytest.fail("the files were listed again"))
    world.land_next(rows("orders", 1, 10))
    assert update_landed_positions(world.lake, "east", known).reached[OTHERS] == 11
