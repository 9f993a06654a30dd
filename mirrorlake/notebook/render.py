"""HTML for mirrorlake's values, by type; everything is escaped, nothing is fetched, no query is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from html import escape
from typing import Any, get_args

from mirrorlake.model.offset_map import Exact, Translation
from mirrorlake.model.plan import Plan
from mirrorlake.steps.status import PartitionStatus
from mirrorlake.steps.verify import Verification

# A notebook stays readable: whoever wants every row asks for the value's fields.
MOST_ROWS = 200


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table that takes its colours from the notebook's theme.

    >>> table("t", ["a"], [["<b>"]]).count("&lt;b&gt;")
    1
    """
    shown = list(rows)
    head = "".join(f"<th style='text-align:left'>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in shown[:MOST_ROWS])
    more = f"<p>… and {len(shown) - MOST_ROWS} more</p>" if len(shown) > MOST_ROWS else ""
    return f"<p><b>{escape(title)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"<td style='text-align:right'>{value:,}</td>"
    return f"<td style='text-align:left'>{escape('–' if value is None else str(value))}</td>"


def plan_html(plan: Plan) -> str:
    """Return a plan as a table of its changes."""
    if not plan:
        return "<p>✓ nothing to change</p>"
    rows = [(c.where, c.action, c.kind, c.name, c.before, c.after, c.reason) for c in plan.changes]
    return table(f"{len(rows)} change(s)", ["where", "action", "kind", "name", "before", "after", "reason"], rows)


def verification_html(found: Verification) -> str:
    """Return a verification: one row a partition, and the differences where there are any."""
    verdict = "✓ equal" if found.equal else f"✗ {len(found.differences)} difference(s)"
    columns = ["topic", "generation", "partition", "landed", "republished", "verified"]
    html = table(f"{found.flow}: {verdict}", columns, [tuple(asdict(p).values()) for p in found.partitions])
    if found.differences:
        columns = ["where", "problem", "topic", "partition", "offset"]
        html += table("differences", columns, [tuple(asdict(d).values()) for d in found.differences])
    return html


def status_html(row: PartitionStatus) -> str:
    """Return one row of a status."""
    values = asdict(row)
    return table(f"{row.topic}-{row.partition}", list(values), [tuple(values.values())])


def translation_html(found: Any) -> str:
    """Return a translated offset, or the reason why there is none."""
    if isinstance(found, Exact):
        return f"<p>✓ <code>{escape(str(found.partition))}@{found.offset}</code></p>"
    return f"<p>– {escape(found.status.replace('_', ' '))}: {escape(repr(found))}</p>"


FORMATTERS: dict[type, Callable[[Any], str]] = {
    Plan: plan_html,
    Verification: verification_html,
    PartitionStatus: status_html,
    **dict.fromkeys(get_args(Translation), translation_html),
}
