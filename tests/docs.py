"""The pages of docs/ that are made from code: `make docs` writes them, a unit test keeps them in step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mirrorlake.lake.schema import RELAY, SIDE_TABLES, TableSchema
from tests.bench.results import load, markdown

DOCS = Path(__file__).parents[1] / "docs"
_BEGIN, _END = "<!-- made from mirrorlake/lake/schema.py by `make docs` -->", "<!-- end -->"


def tables_page() -> str:
    """Return `docs/tables.md` with the columns as the code has them; the text around them is written by hand."""
    page = (DOCS / "tables.md").read_text()
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    body = "\n\n".join("\n".join(_section(table)) for table in (RELAY, *SIDE_TABLES))
    return f"{before}{_BEGIN}\n\n{body}\n\n{_END}{after}"


def benchmarks_page() -> str:
    """Return `docs/benchmarks.md` with the tables of `docs/benchmarks.json`; the text around them is written by hand."""
    results = load(DOCS / "benchmarks.json")

    def table(place: re.Match[str]) -> str:
        suite = place["suite"]
        return f"<!-- figures of {suite} -->\n\n{markdown(results, suite) or 'Not measured yet.'}\n\n<!-- end -->"

    page = (DOCS / "benchmarks.md").read_text()
    return re.sub(r"<!-- figures of (?P<suite>\S+) -->.*?<!-- end -->", table, page, flags=re.DOTALL)


def _section(table: TableSchema) -> Iterator[str]:
    yield f"### {table.name}"
    yield ""
    yield f"{table.comment}."
    yield ""
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for name, (kind, comment) in table.columns.items():
        yield f"| `{name}` | `{kind}` | {comment.replace('|', 'or')} |"


if __name__ == "__main__":
    (DOCS / "tables.md").write_text(tables_page())
    (DOCS / "benchmarks.md").write_text(benchmarks_page())
