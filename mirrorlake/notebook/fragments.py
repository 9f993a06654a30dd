"""What the console and the page show of a mirror, as HTML and figures; nothing here changes anything.

Anyone with write access to a topic controls its records and names: everything goes through `mirrorlake.render`, which escapes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape as escape_html
from typing import Any

from mirrorlake.config import redact, typed_values
from mirrorlake.config.schema import FlowConfig, NameMatcher
from mirrorlake.errors import MirrorlakeError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.model.offset_map import Exact
from mirrorlake.model.patterns import parse_patterns
from mirrorlake.notebook.charts import events_chart, lag_chart
from mirrorlake.records import BrowsedRecord
from mirrorlake.render import (
    OPENS,
    badge,
    breakable,
    clean,
    escape,
    format_size,
    format_time,
    headers,
    hex_text,
    json_text,
    link,
    payload_html,
    table,
    whole_text,
)

MAX_ROWS = 200
SPANS = ("15m", "1h", "24h", "7d", "30d")
SIDES = ("source", "relay", "target")
_MAX_VALUE_BYTES = 2**18
_MAX_HEX_BYTES = 2**12
_NO_TABLES = "No typed table is set up. One has the records of topics as rows of columns (docs/typed-tables.md):"


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page; `figure` is a plotly figure below the HTML, or None."""

    html: str
    figure: Any = None


def error_text(error: BaseException) -> str:
    """Return an error as text, without the passwords typed in this session."""
    if isinstance(error, MirrorlakeError):
        text = str(error)
    else:
        first = next((line for line in str(error).splitlines() if line.strip()), "no further details")
        text = f"{type(error).__name__}: {first[:400]}"
    return redact(text, typed_values())


def error_html(text: str) -> str:
    return f'<div role="alert">{badge("failed").html()} {"<br>".join(map(breakable, text.splitlines()))}</div>'


def code_html(text: str) -> str:
    """Return lines of settings, commands or content; long lines wrap on a narrow page."""
    lines = "\n".join(escape_html(line) for line in text.split("\n"))
    return f'<pre tabindex="0" style="white-space:pre-wrap;overflow-wrap:anywhere;max-height:30em;overflow:auto">{lines}</pre>'


def link_html(text: str, *names: Any) -> str:
    """Return a link for the page, which is plain text in a notebook."""
    return f'<a {OPENS}="{escape(link(*names))}">{breakable(text)}</a>'


def status(mirror: Mirror, flow: str | None = None, since: str = "1h") -> Fragment:
    """Show verdicts and lags now, and the lag that the mirror has sampled, with what happened meanwhile."""
    found = mirror.status(flow).to_html(rows=MAX_ROWS)
    try:
        lines = (mirror.lag if flow is None else mirror[flow].lag).lines(since)
    except UsageError:
        # A mirror that has not run yet has no samples.
        return Fragment(found)
    if lines.observed_at.nunique() < 2:
        return Fragment(found)
    flows = [one for one in mirror.config.flows if flow in (None, one.name)]
    objectives = {one.name: one.objectives.rpo.total_seconds() for one in flows if one.objectives.rpo is not None}
    events = mirror.events(since, flow=flow)
    return Fragment(found, lag_chart(lines, objectives=objectives, events=events))


def events(mirror: Mirror, since: str = "24h") -> Fragment:
    happened = mirror.events(since)
    return Fragment(happened.to_html(rows=MAX_ROWS), events_chart(happened) if happened.events else None)


def topics(mirror: Mirror, cluster: str, matching: str = "", *, internal: bool = False) -> Fragment:
    """List the topics of a cluster; `matching` is a selection as in `topics` of a flow, or empty for all."""
    listed = mirror.topics(cluster, internal=internal)
    if matching.strip():
        matcher = NameMatcher(parse_patterns(matching))
        listed = replace(listed, topics=tuple(line for line in listed if matcher.matches(line.topic)))
    return Fragment(listed.to_html(rows=MAX_ROWS))


def topic(mirror: Mirror, cluster: str, name: str) -> Fragment:
    """Show where one topic is mirrored, or why not, with links to the topics there."""
    listed = mirror.topics(cluster, internal=True)
    lines = tuple(line for line in listed if line.topic == name)
    if not lines:
        raise UsageError(f"{cluster} has no topic '{name}', or does not show it", remedy="choose one of its topics")
    others = [(one.cluster, one.other) for line in lines for one in line.mirrorings if one.other]
    links = " · ".join(link_html(f"{alias}: {other}", "topic", alias, other) for alias, other in others)
    return Fragment(replace(listed, topics=lines, notes=()).to_html() + f"<p>{links}</p>")


def groups(mirror: Mirror, flow: str, group: str = "") -> Fragment:
    """Show the groups of a flow on both clusters, and where each would go; of one group each position."""
    overview = mirror.group_standing(flow)
    if not group:
        return Fragment(overview.to_html(rows=MAX_ROWS))
    chosen = tuple(one for one in overview.groups if one.group == group)
    if not chosen:
        raise UsageError(f"no group {group} has committed on the topics of {flow}", remedy="choose one of its groups")
    plan = mirror.plan_groups(flow, groups=[group])
    return Fragment(replace(overview, groups=chosen).to_html() + plan.to_html(rows=None))


def tables(mirror: Mirror) -> Fragment:
    if not mirror.config.tables:
        return Fragment(f"<p>{escape(_NO_TABLES)}</p>{code_html('tables:' + chr(10) + '  - topics: sales')}")
    found = mirror.tables()
    links = " · ".join(link_html(one.name, "table", one.name) for one in found.tables)
    return Fragment(found.to_html(rows=MAX_ROWS) + f"<p>{links or 'None of their topics was landed yet.'}</p>")


def one_table(mirror: Mirror, name: str) -> Fragment:
    return Fragment(mirror.table(name).to_html(rows=MAX_ROWS))


def recovery(mirror: Mirror, flow: str) -> Fragment:
    """Show whether a flow meets its objectives, and its past drills."""
    drills = mirror[flow].drills()
    rows = [
        (
            one.began_at,
            badge("passed", "good") if one.passed else badge("failed", "bad"),
            *(f"{verdict.objective}: {verdict.said}" for verdict in one.verdicts[:2]),
            one.records,
            one.scratch,
        )
        for one in drills
    ]
    past = table("drills", ["began", "", "RPO", "RTO", "records", "into"], rows).html()
    return Fragment(mirror[flow].status().to_html() + (past if rows else "<p>No drill of this flow was run yet.</p>"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsQuery:
    """Which records of a source topic to show on all three sides.

    `offset` is one of `side`; the other sides begin at its exact counterpart, or at the next record. `at` is a time, as `mirror.browse`
    reads it. Without both the newest records are shown.
    """

    flow: str
    topic: str
    partition: int | None = None
    side: str = SIDES[0]
    offset: int | None = None
    at: str = ""
    count: int = 20
    key: str = ""
    contains: str = ""
    where: str = ""


def records(mirror: Mirror, query: RecordsQuery) -> Fragment:
    """Show source, relay and target, each read by itself: one that fails says why, and the others are shown."""
    flow = mirror.config.flow(query.flow)
    parts = []
    for side in SIDES:
        try:
            shown = _side(mirror, flow, query, side)
        except Exception as error:  # shown on its side: the others may have an answer
            shown = error_html(error_text(error))
        parts.append(f'<div style="flex:1 1 24em;min-width:0"><b>{side}</b>{shown}</div>')
    return Fragment(f'<div style="display:flex;flex-wrap:wrap;gap:.6em">{"".join(parts)}</div>')


def _side(mirror: Mirror, flow: FlowConfig, query: RecordsQuery, side: str) -> str:
    partition, offset = query.partition, query.offset
    if offset is not None:
        if partition is None:
            raise UsageError("an offset is one of a partition", remedy="choose a partition")
        if (side == "target") != (query.side == "target"):
            translation = mirror.translate(
                flow.name, topic=query.topic, partition=partition, offset=offset, reverse=query.side == "target"
            )
            if isinstance(translation, Exact):
                partition, offset = translation.partition.partition, translation.offset
            elif (resume := getattr(translation, "resume_at", None)) is not None:
                offset = resume
            else:
                return f"<p>no counterpart: {breakable(translation.sheet().summary())}</p>"
    elif side == "target" and flow.placement.kind != "keep":
        # The flow chooses partitions itself.
        partition = None
    cluster = flow.target if side == "target" else flow.source
    page = mirror.browse(
        cluster,
        flow.remote_topic(query.topic) if side == "target" else query.topic,
        partition,
        offset=offset,
        at=query.at or None,
        count=query.count,
        key=query.key or None,
        contains=query.contains or None,
        where=query.where,
        relay=side == "relay",
    )
    return page.to_html(rows=None)


def passport(mirror: Mirror, cluster: str, name: str, partition: int, offset: int) -> Fragment:
    """Show a record in full, and what happened to it on every side."""
    document = mirror.passport(cluster, name, partition, offset)
    return Fragment(document.to_html(rows=None) + _content(mirror, cluster, name, partition, offset))


def _content(mirror: Mirror, cluster: str, name: str, partition: int, offset: int) -> str:
    """Return the content of the record on the cluster, else in the relay of the cluster, else why there is none."""
    why = "<p>Neither the cluster nor its relay has the record now.</p>"
    for relay in (False, True):
        try:
            page = mirror.browse(cluster, name, partition, offset=offset, count=1, relay=relay)
        except MirrorlakeError as error:
            why = error_html(error_text(error))
            continue
        for record in page.records:
            if record.offset == offset:
                return record_html(record)
    return why


def record_html(record: BrowsedRecord) -> str:
    """Return a record in full: its value as indented JSON or text, and in hexadecimal where it is neither."""
    value = record.value
    rows = [
        ("timestamp", "no timestamp" if record.time is None else format_time(record.time, precision="ms")),
        ("key", record.key),
        ("headers", headers(record.headers, 1000)),
        ("value", "null" if value is None else format_size(len(value))),
    ]
    shown = table("", ["", "record"], rows).html()
    if not value:
        return shown + payload_html(value)
    text = json_text(value)
    if text is None:
        return (
            shown
            + code_html(whole_text(value[:_MAX_VALUE_BYTES]))
            + _details("Hexadecimal", hex_text(value[:_MAX_HEX_BYTES]))
        )
    return shown + code_html("\n".join(map(clean, text.split("\n")))[: 2 * _MAX_VALUE_BYTES])


def _details(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>{code_html(text)}</details>"
