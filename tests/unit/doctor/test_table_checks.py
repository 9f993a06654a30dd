"""What is wrong with typed tables is found, each with its fix; without any, nothing is said."""

from __future__ import annotations

from pathlib import Path

from mirrorlake.context import Context
from mirrorlake.doctor import examine
from mirrorlake.doctor.findings import Finding
from mirrorlake.lake import BAD_RECORDS
from mirrorlake.model.control import PARK, STREAM, Subject
from tests.builders import NOON
from tests.unit.tables.kit import keep, mirror


def found(context: Context, *only: str) -> dict[str, Finding]:
    return {one.subject: one for one in examine(context, only=only or ["tables"]).bad}


def test_without_typed_tables_nothing_is_said(tmp_path: Path) -> None:
    assert list(examine(mirror(tmp_path, topics=["sales"]), only=["tables"])) == []


def test_tables_as_they_should_be_have_no_finding(tmp_path: Path) -> None:
    context = mirror(tmp_path, {"topics": "sales"}, topics=["sales"])
    keep(context, "sales", position=4)
    looks = examine(context, only=["tables"])
    assert looks.bad == []
    assert {one.check for one in looks} == {"tables.pace", "tables.bad-records", "tables.names", "tables.left-over"}


def test_a_table_that_nobody_keeps_is_found_with_its_offset_lag(tmp_path: Path) -> None:
    context = mirror(tmp_path, {"topics": "sales"}, topics=["sales"])
    one = found(context, "tables.pace")["sales"]
    assert (one.severity, one.detail) == ("failure", "its offset lag is 4: it has no row yet")
    assert "mirrorlake tables --run" in one.fix
    keep(context, "sales", position=1)
    one = found(context, "tables.pace")["sales"]
    assert (one.severity, one.detail.split(":")[0]) == ("warning", "its offset lag is 3")


def test_a_parked_table_is_found_with_its_cause_and_next_step(tmp_path: Path) -> None:
    context = mirror(tmp_path, {"topics": "sales"}, topics=["sales"])
    keep(context, "sales", position=4)
    said = {"error": "UsageError", "cause": "it failed", "remedy": "mend it", "exit_code": 2, "is_retried": False}
    value = {"since": NOON.isoformat(), **said}
    context.control().append(PARK, Subject(kind=STREAM, name="table sales"), value=value)
    one = found(context)["sales"]
    assert (one.check, one.severity, one.detail) == ("tables.pace", "failure", "it is parked: it failed")
    assert "mirrorlake resume --table 'sales'" in one.fix


def test_bad_records_are_counted_with_the_most_frequent_reason(tmp_path: Path) -> None:
    context = mirror(tmp_path, {"topics": "sales"}, topics=["sales"])
    keep(context, "sales", position=4)
    reasons = ["rare", "often", "often"]
    for offset, reason in enumerate(reasons):
        bad = {"table_name": "sales", "source": "east", "topic": "sales", "generation": 1, "partition": 0}
        bad |= {"offset": offset, "timestamp": NOON, "key": None, "value": b"{", "reason": reason, "recorded_at": NOON}
        context.lake.append_rows(BAD_RECORDS, [bad])
    one = found(context)["sales"]
    assert (one.severity, one.detail) == ("warning", "3 bad records; most often (2): often")
    assert "table_name = 'sales'" in one.fix


def test_names_that_two_tables_have_are_found(tmp_path: Path) -> None:
    context = mirror(
        tmp_path,
        {"topics": "sales|gaps|a-b|a.b"},
        {"topics": "orders", "name": "sales"},
        topics=["sales", "orders", "gaps", "a-b", "a.b"],
    )
    names = found(context, "tables.names")
    assert "two entries of `tables:` make the table sales" in names["sales"].detail
    assert names["gaps"].detail == "in SQL its name is that of a table of mirrorlake"
    assert names["a-b"].detail == "in SQL it has the name of a.b: a_b"
    assert all("`name:`" in one.fix for one in names.values())


def test_a_table_that_no_setting_names_any_more_is_found(tmp_path: Path) -> None:
    context = mirror(tmp_path, {"topics": "sales"}, topics=["sales"])
    keep(context, "sales", position=4)
    keep(context, "gone", position=4)
    one = found(context)["gone"]
    assert (one.check, one.severity) == ("tables.left-over", "warning")
    assert one.fix.endswith("lake/tables/gone")
    assert "gone" in found(mirror(tmp_path))
