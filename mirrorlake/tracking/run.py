"""What one run holds, whoever keeps it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

# Tags by which runs are found again.
KIND = "mirrorlake.kind"
FLOW = "mirrorlake.flow"
# MLflow's own limit of a parameter's value.
_LONGEST_PARAMETER = 6000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """One run: `parameters` went in and are not secrets, `figures` came out, `reports` are texts by file name.

    Names of figures end with their unit where they have one: `seconds`, `records_per_second`; counts are records.
    """

    kind: str
    name: str
    began_at: datetime
    ended_at: datetime
    parameters: Mapping[str, str | int | float | bool]
    figures: Mapping[str, float]
    reports: Mapping[str, str]
    tags: Mapping[str, str] = field(default_factory=dict)

    def all_tags(self) -> dict[str, str]:
        """Return the tags, that of the kind among them."""
        return {KIND: self.kind, **self.tags}

    def texts(self) -> dict[str, str]:
        """Return the parameters as MLflow takes them."""
        return {name: str(value)[:_LONGEST_PARAMETER] for name, value in self.parameters.items()}


def json_report(document: Any) -> str:
    """Return a document as a report."""
    return json.dumps(document, indent=2, default=str) + "\n"


def html_page(title: str, value: Any) -> str:
    """Return a page that shows a value as a notebook does, as plain text where it has no such form.

    >>> "&lt;b&gt;" in html_page("<b>", "<b>")
    True
    """
    face = getattr(value, "_repr_html_", None)
    body = face() if face is not None else f"<pre>{html.escape(str(value))}</pre>"
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title>'
    return f"<!doctype html>\n<html><head>{head}</head><body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
