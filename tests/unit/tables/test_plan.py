"""What `plan` says of typed tables, and what the settings file may not say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config import loads
from mirrorlake.config.schema import TableConfig
from mirrorlake.context import Context
from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.model.plan import Change
from mirrorlake.tables import plan_tables
from mirrorlake.tables.definition import find_tables, list_tables
from mirrorlake.topics import settings_in_force
from tests.unit.tables.kit import keep, mirror

SALES = {"east": ["sales"]}
APPENDED = {"mode": "append", "keys": "text", "values": "json", "schema": "inferred", "columns": {}}


def _notes(context: Context) -> list[str]:
    return [note.reason for note in plan_tables(context).notes]


def test_law_g_plan_shows_the_tables_to_come_and_once_applied_no_more(tmp_path: Path) -> None:
    written = {"topics": "orders", "name": "{source}_{topic}", "schema": "amount DECIMAL(12,2)", "mode": "upsert"}
    context = mirror(tmp_path, {"topics": "sales"}, written, {"topics": "to_come.*"}, topics=["sales", "orders"])
    made = plan_tables(context)
    assert {
        (one.name, one.action, one.after["mode"], one.after["topics"], one.after["columns"]) for one in made.changes
    } == {
        ("sales", "create", "append", "east sales", "come with the first records"),
        ("east_orders", "create", "upsert", "east orders", "amount"),
        ("{topic}", "create", "append", "to_come.*", "come with the first records"),
    }
    assert "its first record makes it" in str(made)
    settings_in_force.put_in_force(context.config, context.control())
    assert not plan_tables(context)


def test_plan_shows_what_changed_and_what_is_gone(tmp_path: Path) -> None:
    before = mirror(tmp_path, {"topics": "sales"}, {"topics": "orders"}, topics=["sales", "orders"])
    settings_in_force.put_in_force(before.config, before.control())
    edited = mirror(tmp_path, {"topics": "sales", "every": "1m", "columns": {"day": "to_date(_timestamp)"}})
    changes = {one.name: one for one in plan_tables(edited).changes}
    assert isinstance(changes["sales"], Change)
    assert (changes["sales"].action, changes["sales"].after["columns"]) == (
        "change",
        "come with the first records, day = to_date(_timestamp)",
    )
    assert set(changes["sales"].after) == {"every", "columns"}
    assert (changes["orders"].action, changes["orders"].reason.split(";")[1]) == (
        "remove",
        " the table and its rows stay, and no record is added",
    )


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            {"mode": "upsert"},
            "mode: append, and the settings say upsert; its stream waits until it is built again: mirrorlake tables",
        ),
        ({"values": "text"}, "values: json, and the settings say text; its stream waits until it is built again"),
        ({"schema": "n BIGINT"}, "schema: inferred, and the settings say n BIGINT; older rows stay as they are"),
    ],
)
def test_settings_that_a_tables_rows_were_not_made_with_are_told(
    tmp_path: Path, entry: dict[str, Any], told: str
) -> None:
    context = mirror(tmp_path, {"topics": "sales", **entry}, topics=["sales"])
    keep(context, "sales", position=4, made_with=APPENDED)
    assert [told in note for note in _notes(context)] == [True]
    [table] = find_tables(context)
    properties = context.lake.properties(context.lake.typed_location("sales"))
    if "stream waits" in told:
        with pytest.raises(UsageError, match="the table sales was made with") as refused:
            table.refuse_edits(properties)
        assert "mirrorlake tables --rebuild sales --apply, give" in str(refused.value)
    else:
        table.refuse_edits(properties)


def test_settings_as_they_were_are_not_told(tmp_path: Path) -> None:
    context = mirror(tmp_path, {"topics": "sales"}, topics=["sales"])
    keep(context, "sales", position=4, made_with=APPENDED)
    assert _notes(context) == []


def test_plan_tells_of_a_source_without_the_registry_that_its_records_name(tmp_path: Path) -> None:
    registry = {"url": "http://localhost:1"}
    given = [{"topics": "sales", "values": "avro", **more} for more in ({}, {"name": "own", "registry": registry})]
    bare = mirror(tmp_path, topics=["sales"]).config
    found = list_tables(bare.model_copy(update={"tables": tuple(map(TableConfig.model_validate, given))}), SALES)
    assert [one.fault is None for one in found] == [True, False]
    assert "the records of east sales name schemas, and its schema registry is not known" in str(found[1].fault)


def test_plan_tells_of_two_entries_of_one_table_and_of_names_that_sql_takes_for_others(tmp_path: Path) -> None:
    context = mirror(
        tmp_path,
        {"topics": "sales"},
        {"topics": "orders", "name": "sales"},
        {"topics": "gaps"},
        topics=["sales", "orders", "gaps"],
    )
    [hidden, twice] = _notes(context)
    assert "two entries of `tables:` make the table sales: tables[0] and tables[1]" in twice
    assert f"query delta.`{context.lake.typed_location('gaps')}`" in hidden


@pytest.mark.parametrize(
    ("tables", "place", "problem"),
    [
        ("[{topics: sales, sources: [east, moon]}]", "tables[0].sources[1]", "no flow has 'moon' as its source"),
        ("[{topics: a, sources: [west]}]", "tables[0].sources[0]", "no flow has 'west' as its source"),
        (
            "[{topics: a, name: sales}, {topics: b}, {topics: c, name: Sales}]",
            "tables[2].name",
            "a second table 'Sales'",
        ),
        (
            "[{topics: a, values: avro, keys: protobuf}]",
            "tables[0].keys",
            "these records name schemas, and no schema registry of east is known",
        ),
        *(
            (f"[{{topics: sales, {entry}}}]", f"tables[0].{place}", problem)
            for entry, place, problem in (
                ("partition_by: [n, _offset]", "partition_by[1]", "each record has a '_offset' of its own"),
                (
                    "partition_by: 'd, D', columns: {d: to_date(_timestamp)}",
                    "partition_by[1]",
                    "'D' stands there twice",
                ),
                ("partition_by: [m], schema: n BIGINT", "partition_by[0]", "the table has no column 'm'"),
                (
                    "partition_by: [n], schema: 'n ARRAY<INT>'",
                    "partition_by[0]",
                    "'n' is not of a type that partitions have",
                ),
                (
                    "partition_by: [value], values: binary",
                    "partition_by[0]",
                    "'value' is not of a type that partitions have",
                ),
                ("columns: {day: n, Day: m}", "columns.Day", "'Day' is another column, too"),
                ("columns: {value: lower(value)}, values: text", "columns.value", "'value' is another column, too"),
            )
        ),
    ],
)
def test_faults_of_tables_have_their_place(tables: str, place: str, problem: str) -> None:
    text = f"""
lake: {{root: ./lake}}
clusters: {{east: {{bootstrap_servers: "e:9092"}}, west: {{bootstrap_servers: "w:9092"}}}}
flows: [{{source: east, target: west, topics: .*}}]
tables: {tables}
"""
    with pytest.raises(ConfigError) as refused:
        loads(text)
    assert place in str(refused.value)
    assert problem in str(refused.value)


def test_partitions_of_known_and_of_unknown_columns_are_taken() -> None:
    for entry in (
        {"partition_by": "_source, _topic"},
        {"partition_by": ["n"]},
        {"partition_by": ["n"], "schema": "n DECIMAL(12,2)"},
        {"partition_by": ["value", "size"], "values": "text", "columns": {"size": "length(value)"}},
    ):
        assert TableConfig.model_validate({"topics": "sales", **entry}).partition_by
