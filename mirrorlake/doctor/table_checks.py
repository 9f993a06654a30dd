"""Checks of typed tables: that they are in pace, what is no row of them, and whose names and files they have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, warning
from mirrorlake.doctor.registry import check
from mirrorlake.lake import quote
from mirrorlake.render import format_count, plural
from mirrorlake.tables import TypedTable, find_tables, read_tables, view_name

_REASONS = """
    SELECT table_name, reason, count(*) AS bad FROM {bad_records} GROUP BY table_name, reason ORDER BY bad DESC, reason
"""


def _known(inputs: CheckContext) -> list[TypedTable]:
    return inputs.once("typed tables", lambda: find_tables(inputs.context))


@check("tables.pace", layer="lake", fix="mirrorlake run, or mirrorlake tables --run; mirrorlake resume --table T")
def _pace(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The streams of typed tables run, and no record waits long for its table."""
    for one in read_tables(inputs.context, state=inputs.control()).tables if _known(inputs) else ():
        if one.parked is not None:
            yield failure(one.name, f"it is parked: {one.parked.cause}", one.parked.next_step)
        elif one.verdict in ("STALL", "WARNING"):
            said = f"its offset lag is {format_count(one.offset_lag)}: {one.why().split('; next')[0]}"
            look = failure if one.verdict == "STALL" else warning
            yield look(one.name, said, "mirrorlake run, or mirrorlake tables --run, keeps it; read its log")
        elif not one.fault:
            yield fine(one.name, "paused" if one.pause else "in pace")


@check(
    "tables.bad-records",
    layer="lake",
    finds="warning",
    fix="mend the producers, or the entry's values, schema or changes",
)
def _bad_records(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The records of typed tables are rows: what is none is in the table `bad_records`, with the reason."""
    rows = inputs.lake.query_rows(_REASONS, missing_ok=True) if _known(inputs) else []
    reasons: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        reasons[row.table_name][row.reason] = int(row.bad)
    for table in _known(inputs):
        if not (found := reasons.get(table.name)):
            yield fine(table.name, "no bad record")
            continue
        # The most frequent reason comes first.
        reason, count = next(iter(found.items()))
        total = sum(found.values())
        yield warning(
            table.name,
            f"{plural(total, 'bad record')}; most often ({format_count(count)}): {reason}",
            f"the table bad_records has them (table_name = {quote(table.name)}); mend their producers or the entry",
        )


@check("tables.names", layer="lake", fix="give the entry of `tables:` another `name:`")
def _names(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Each typed table has one entry of the settings, and a name that SQL takes for no other table."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for table in _known(inputs):
        by_name[view_name(table.name).lower()].append(table.name)
    for table in _known(inputs):
        others = [name for name in by_name[view_name(table.name).lower()] if name != table.name]
        if table.fault is not None:
            yield failure(table.name, table.fault.cause, table.fault.remedy)
        elif table.is_hidden:
            yield warning(table.name, "in SQL its name is that of a table of mirrorlake", "give it another `name:`")
        elif others:
            said = f"in SQL it has the name of {', '.join(others)}: {view_name(table.name)}"
            yield warning(table.name, said, "give one of them another `name:`")
        else:
            yield fine(table.name, f"{view_name(table.name)} in SQL")


@check(
    "tables.left-over", layer="lake", finds="warning", fix="name its topics in `tables:` again, or delete its folder"
)
def _left_over(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """No typed table lies in the lake's folder that no entry of the settings makes any more: its rows grow old."""
    root = inputs.config.lake.folder()
    folders = sorted(Path(root, "tables").glob("[!._]*/_delta_log")) if root is not None else []
    known = {table.name for table in _known(inputs)}
    for folder in (one.parent for one in folders if one.parent.name not in known):
        yield warning(
            folder.name,
            "it lies in the lake, and no entry of `tables:` makes it",
            f"name its topics in `tables:` again, or delete {folder}",
        )
    if folders and known >= {one.parent.name for one in folders}:
        yield fine("tables", f"{plural(len(folders), 'typed table')}, each of the settings")
