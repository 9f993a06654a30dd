"""What is asked of a catalog, and how often; a session that counts."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake import GAPS, Control, Lake
from mirrorlake.lake.schema import CONTROL
from mirrorlake.lake.spark_tables import SparkTables
from tests.builders import NOON


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


def test_looks_at_what_a_person_wants_ask_a_catalog_for_no_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, read = Counter[str](), Counter[str]()

    def exists(location: str) -> bool:
        asked[location] += 1
        return True

    def properties(_: SparkTables, location: str) -> dict[str, str]:
        read[location] += 1
        return {}

    monkeypatch.setattr(SparkTables, "properties", properties)
    monkeypatch.setattr(SparkTables, "has_version", lambda *_: False)
    session: Any = SimpleNamespace(catalog=SimpleNamespace(tableExists=exists))
    lake = Lake(session, LakeConfig.model_validate({"catalog": "c", "schema": "s", "checkpoints": "/c"}))
    control = Control(lake, now=lambda: NOON)
    for _ in range(100):
        control.state()
    assert dict(asked) == dict.fromkeys((lake.meta_location(GAPS), lake.meta_location(CONTROL)), 1)
    assert read[lake.meta_location(GAPS)] == 100, "a later release may have upgraded the lake at any time"
