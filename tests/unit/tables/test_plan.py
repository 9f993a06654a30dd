"""What `plan` says of typed tables, and what the settings file may not say of them."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config.schema import TableConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.tables import find_tables, list_tables, plan_tables
from mirrorlake.topics import settings_in_force
from tests.unit.tables.kit import keep, land, mirror

MADE_WITH = {"mode": "append", "keys": "text", "values": "json", "schema": "inferred", "columns": {}}
WAITS = "its stream waits until it is built again: mirrorlake tables --rebuild sales --apply"
STAY = "older rows stay as they are until it is built again: mirrorlake tables --rebuild sales --apply"


def notes(context: Context) -> list[str]:
    return [note.reason for note in plan_tables(context).notes]


def test_law_g_plan_shows_the_tables_to_come_changed_and_gone_and_once_applied_no_more(tmp_path: Path) -> None:
    written = {"topics": "orders", "name": "{source}_{topic}", "mode": "upsert", "sources": ["east"]}
    context = mirror(tmp_path, {"topics": "sales"}, written)
    made = settings_in_force.settings_plan(context.config, context.control()).changes
    assert [(one.action, one.name, one.after["topics"]) for one in made] == [
        ("create", "east_orders", ["orders"]),
        ("create", "sales", ["sales"]),
    ]
    settings_in_force.put_in_force(context.config, context.control())
    assert not settings_in_force.settings_plan(context.config, context.control())
    edited = mirror(tmp_path, {"topics": "sales", "columns": {"day": "to_date(_timestamp)"}})
    gone, sales = settings_in_force.settings_plan(edited.config, context.control()).changes
    assert (sales.action, sales.after) == ("change", {"columns.day": "to_date(_timestamp)"})
    assert (gone.action, gone.name) == ("remove", "east_orders")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, []),
        ({"mode": "upsert"}, [f"mode: append, and the settings say upsert; {WAITS}"]),
        ({"values": "text"}, [f"values: json, and the settings say text; {WAITS}"]),
        ({"schema": "n BIGINT"}, [f"schema: inferred, and the settings say n BIGINT; {STAY}"]),
    ],
)
def test_settings_that_a_tables_rows_were_not_made_with_are_told(tmp_path: Path, entry: Any, told: list[str]) -> None:
    context = mirror(tmp_path, {"topics": "sales", **entry}, topics=["sales"])
    keep(context, position=4, settings=MADE_WITH)
    assert notes(context) == [f"its rows were made with {one}" for one in told]
    [table] = find_tables(context)
    refuses = pytest.raises(UsageError, match="mirrorlake tables --rebuild sales --apply, give")
    with refuses if WAITS in "".join(told) else nullcontext():
        table.refuse_edits(context.lake.properties(context.lake.typed_location("sales")))


@pytest.mark.parametrize("changes", ["add", "refuse"])
def test_law_g_plan_tells_which_columns_the_waiting_records_add_or_widen(tmp_path: Path, changes: str) -> None:
    context = mirror(tmp_path, {"topics": "sales", "keys": "json", "changes": changes}, topics=["sales"])
    kind = {"members": {"n": "int", "same": "int", "who": {"members": {"age": "int"}}, "past": "long"}}
    keep(context, position=4, value_type={"kind": kind}, key_type={"kind": "int"})
    assert notes(context) == []
    waiting = [{"n": "secret", "same": 2, "in": [{"x": True}]}, {"who": {"age": 1.5, "name": None}, "more": []}]
    for offset, value in enumerate([*waiting, {"past": 0.5}], 4):
        land(context, "sales", offset, key=b"0.5", value=json.dumps(value).encode())
    expected = [
        "waiting records widen the column _key, BIGINT, to DOUBLE; the table is built again",
        "waiting records add the column in[].x, BOOLEAN",
        "waiting records widen the column n, BIGINT, to STRING; the table is built again",
        "waiting records widen the column who.age, BIGINT, to DOUBLE; the table is built again",
        "waiting records widen the column past, BIGINT, to STRING; the table is built again",
    ]
    assert notes(context) == (expected if changes == "add" else [])


def test_plan_tells_of_what_keeps_a_table_from_being_written(tmp_path: Path) -> None:
    entries = [{"topics": "sales"}, {"topics": "orders", "name": "sales"}, {"topics": "gaps"}]
    context = mirror(tmp_path, *entries, topics=["sales", "orders", "gaps"])
    [hidden, twice] = notes(context)
    assert "two entries of `tables:` make the table sales: tables[0] and tables[1]" in twice
    assert f"query delta.`{context.lake.typed_location('gaps')}`" in hidden
    registry = {"url": "http://localhost:1"}
    given = [{"topics": "sales", "values": "avro", **more} for more in ({}, {"name": "own", "registry": registry})]
    config = context.config.model_copy(update={"tables": tuple(map(TableConfig.model_validate, given))})
    [own, sales] = list_tables(config, {"east": ["sales"]})
    assert own.fault is None
    assert "the records of east name schemas, and its schema registry is not known" in str(sales.fault)
