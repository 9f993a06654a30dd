"""The pages of docs/ that are made from code: `make docs` writes them, a unit test keeps them in step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from mirrorlake.doctor import list_checks
from mirrorlake.lake.schema import RELAY, SIDE_TABLES, TableSchema
from tests.bench.results import load, markdown

DOCS = Path(__file__).parents[1] / "docs"
_CHECKS = "<!-- made from mirrorlake/doctor/ by `make docs` -->"
_LAYERS = {
    "settings": "Settings",
    "machine": "This machine",
    "cluster": "Clusters",
    "lake": "The lake",
    "flow": "Flows, their topics and groups",
}
Columns = Mapping[str, tuple[str, str]]
# A column that means the same in so many side tables is described once.
_MIN_TABLES = 3
_BEGIN, _END = "<!-- made from mirrorlake/lake/schema.py by `make docs` -->", "<!-- end -->"


def tables_page() -> str:
    """Return `docs/tables.md` with the columns as the code has them; the text around them is written by hand."""
    page = (DOCS / "tables.md").read_text()
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    uses = Counter((name, column) for table in SIDE_TABLES for name, column in table.columns.items())
    shared = dict(pair for pair, tables in uses.items() if tables >= _MIN_TABLES)
    sections = [_column_rows(shared), _section(RELAY, {}), *(_section(table, shared) for table in SIDE_TABLES)]
    body = "\n\n".join("\n".join(section) for section in sections)
    return f"{before}{_BEGIN}\n\n{body}\n\n{_END}{after}"


def benchmarks_page() -> str:
    """Return `docs/benchmarks.md` with the tables of `docs/benchmarks.json`; the text around them is written by hand."""
    results = load(DOCS / "benchmarks.json")

    def table(place: re.Match[str]) -> str:
        suite = place["suite"]
        return f"<!-- figures of {suite} -->\n\n{markdown(results, suite) or 'Not measured yet.'}\n\n<!-- end -->"

    page = (DOCS / "benchmarks.md").read_text()
    return re.sub(r"<!-- figures of (?P<suite>\S+) -->.*?<!-- end -->", table, page, flags=re.DOTALL)


def doctor_page() -> str:
    """Return `docs/doctor.md` with the checks as the code has them; the text around them is written by hand."""
    page = (DOCS / "doctor.md").read_text()
    before, rest = page.split(_CHECKS)
    _, after = rest.split(_END)
    body = "\n".join(_checks())
    return f"{before}{_CHECKS}\n\n{body}\n{_END}{after}"


def _checks() -> Iterator[str]:
    layer = ""
    for one in list_checks():
        if one.layer != layer:
            layer = one.layer
            yield f"## {_LAYERS[layer]}\n"
        found = {"ok": "Only informs. ", "warning": "Warning. ", "failure": ""}[one.finds]
        yield f"### {one.name}\n"
        yield f"{one.about}\n"
        yield f"{found}Fix: {one.fix}.\n"


def _section(table: TableSchema, shared: Columns) -> Iterator[str]:
    """Yield a table's heading and its columns; those that are shared, by name only."""
    names = [name for name, column in table.columns.items() if shared.get(name) == column]
    yield f"### {table.name}"
    yield ""
    yield f"{table.comment}." + (f" Shared: {', '.join(f'`{name}`' for name in names)}." if names else "")
    yield ""
    yield from _column_rows({name: column for name, column in table.columns.items() if name not in names})


def _column_rows(columns: Columns) -> Iterator[str]:
    yield "|column|type|meaning|"
    yield "|-|-|-|"
    for name, (kind, comment) in columns.items():
        yield f"|`{name}`|`{kind}`|{comment.replace('|', 'or')}|"


if __name__ == "__main__":
    (DOCS / "tables.md").write_text(tables_page())
    (DOCS / "benchmarks.md").write_text(benchmarks_page())
    (DOCS / "doctor.md").write_text(doctor_page())
