"""What is asked of a catalog, and how often; a session that counts."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake import Lake


def test_a_catalog_is_asked_once_for_a_table_that_exists_and_each_time_for_one_that_does_not() -> None:
    there, asked = {"`c`.`s`.`relay_east`", "`c`.`s`.`gaps`"}, Counter[str]()

    def exists(location: str) -> bool:
        asked[location] += 1
        return location in there

    session: Any = SimpleNamespace(catalog=SimpleNamespace(tableExists=exists))
    lake = Lake(session, LakeConfig.model_validate({"catalog": "c", "schema": "s", "checkpoints": "/c"}))
    lake._is_version_checked = True
    east, west = (lake.relay_location(alias) for alias in ("east", "west"))
    assert [lake.exists(place) for place in (east, west, east, west)] == [True, False, True, False]
    assert (asked[east], asked[west]) == (1, 2)
    there.add(west)
    assert lake.exists(west), "what is not there may be made meanwhile"
    there.remove(east)
    assert east in lake.missing(["east"]), "what somebody removed is made again"
    assert not lake.exists(east)
