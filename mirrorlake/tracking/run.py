"""The content of a tracked run."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

# The tags by which runs are searched.
KIND = "mirrorlake.kind"
FLOW = "mirrorlake.flow"
# MLflow's own limit of a parameter's value.
LONGEST_PARAMETER = 6000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """One run: `parameters` are inputs and not secrets, `figures` are results, `reports` are texts by file name.

    A figure's name ends with its unit if it has one: `seconds`, `records_per_second`; counts are records.
    """

    kind: str
    name: str
    began_at: datetime
    ended_at: datetime
    parameters: Mapping[str, str | int | float | bool]
    figures: Mapping[str, float]
    reports: Mapping[str, str]
    tags: Mapping[str, str] = field(default_factory=dict)


def json_report(document: Any) -> str:
    return json.dumps(document, indent=2, default=str) + "\n"


def html_page(title: str, value: Any) -> str:
    """Return a page with a value's notebook form, or its plain text.

    >>> "&lt;b&gt;" in html_page("<b>", "<b>")
    True
    """
    face = getattr(value, "_repr_html_", None)
    body = face() if face is not None else f"<pre>{html.escape(str(value))}</pre>"
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title>'
    return f"<!doctype html>\n<html><head>{head}</head><body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
