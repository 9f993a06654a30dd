"""Report lag, latency, RPO, verdicts and proofs of a time range on one page that needs no network and no script.

The page is made of tables and still pictures (`render/svg_chart.py`), so that it reads the same in a mail, in an archive and where
JavaScript is off; its own policy forbids it to load or to run anything. Everything that others wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from mirrorlake.errors import StoreError, UsageError
from mirrorlake.events import Events
from mirrorlake.lag.hop_verdicts import LagVerdict
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.objectives import objectives_table
from mirrorlake.lag.partition_status import to_timedelta
from mirrorlake.lag.series import LagPoint, LatencyPoint, RpoPoint, bucket_s, lag_points, latency_points, rpo_points
from mirrorlake.lag.time_lag import Total, combine_known, sum_lags
from mirrorlake.lag.verdict import Verdict
from mirrorlake.lake import NewestProof
from mirrorlake.model.verify import VerifyReport
from mirrorlake.render import (
    DURATIONS,
    Displayable,
    Line,
    Mark,
    Sheet,
    Table,
    badge,
    chart,
    escape,
    format_time,
    table,
)

# A longer page would not be read; `mirrorlake lag --json` has all rows.
MAX_ROWS = 500

_STYLE = (
    ":root{color-scheme:light dark}body{font:14px/1.5 system-ui,sans-serif;max-width:76em;margin:2em auto;padding:0 1em}"
    "h2{margin-top:2em;border-bottom:1px solid rgba(128,128,128,.4)}figure{margin:1em 0}figcaption{font-weight:bold}"
    "dt{font-weight:bold}dd{margin:0 0 .4em 1.5em}"
    # On paper: black on white, no picture and no row across a page, headings with what they head.
    "@media print{:root{color-scheme:light}body{margin:0;max-width:none;font-size:11px}figure,tr,dt{break-inside:avoid}"
    "h2,figcaption{break-after:avoid}details:not([open]){display:none}thead{display:table-header-group}}@page{margin:15mm}"
)
# The page explains its terms, because a reader may get it by mail alone.
_WORDS = {
    "offset lag": "how many offsets of the source a hop has not passed yet; markers of transactions count, too",
    "time lag": "how long the oldest record that waits for a hop has waited; 0 where none waits",
    "hop": "a step on the way: landed (source to relay), republished (relay to target), consumed (read by a group)",
    "verdict": "what the samples of a window say by Burrow's rules: OK, WARNING (lag grows), STALL, STOP, REWIND; PAUSED where a "
    "person wanted it, CLUSTER AWAY where a cluster does not answer, WARMING UP before three samples, UNKNOWN without samples",
    "catches up in": "when the lag is gone at the present rates; a dash where it does not shrink, or no more waits than is under way",
    "at risk": "partitions whose records the source deletes before they are landed, at the present rates",
    "latency": "from a record's own timestamp to its commit on the target; p50 of the records are faster, p99 nearly all",
    "RPO": "what would be lost if the source were lost at that moment: the age of the oldest record that is not on the target",
    "RTO": "how long a failover takes until groups are placed on the target, as measured by the last drill or failover",
    "proven until": "the upstream offset up to which verifications found every landed record on the target",
    "verified": "records that were compared with source, relay and target, and are equal",
    "not compared": "records that the target no longer held, or that were sent after the cut; nothing is claimed of them",
    "events": "what happened to the mirror, shaded in the pictures of lag; each says its name where the pointer rests on it",
    "withheld": "records that a rule of the flow kept from the target, with its reason in the table withheld",
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Displayable):
    """A report on a time range; `html` is the page, `write` makes a file of it.

    `settings` is the settings' fingerprint, as `mirrorlake apply` records it; `verdict` is that at the end of the stretch; the
    points are in the order of time; `verifications` are the last ones of this process, and `recorded` the newest of any other one;
    `mirror` names the flows, `host` the machine that made it.
    """

    start: datetime
    end: datetime
    settings: str
    verdict: LagVerdict
    lag: tuple[LagPoint, ...] = ()
    latency: tuple[LatencyPoint, ...] = ()
    rpo: tuple[RpoPoint, ...] = ()
    verifications: tuple[VerifyReport, ...] = ()
    verified_at: datetime | None = None
    recorded: tuple[NewestProof, ...] = ()
    events: Events | None = None
    mirror: str = ""
    host: str = ""

    @property
    def title(self) -> str:
        """The title of the page: the mirror, and the machine that made the report."""
        return " · ".join(
            part for part in ("mirrorlake report", self.mirror, self.host and f"made on {self.host}") if part
        )

    def sheet(self) -> Sheet:
        """Show the summary and the verifications."""
        facts = (
            f"{format_time(self.start, zone=timezone.utc)} to {format_time(self.end, zone=timezone.utc)}",
            f"settings {self.settings}",
        )
        objectives = [objectives_table(self.verdict.objectives)] if self.verdict.objectives else []
        parts: tuple[str | Table | Sheet, ...] = (self._summary(), *objectives, self._proofs())
        return Sheet(title="mirrorlake report", badge=badge(self.verdict.verdict.label), facts=facts, parts=parts)

    def as_dict(self) -> dict[str, Any]:
        """Build the JSON document: the summary, the verdicts and the verifications, without the series."""
        return {
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "settings": self.settings,
            "lag": self.verdict.as_dict(),
            "rpo": {flow: {"now_ms": now, "most_ms": most} for flow, (now, most) in self._rpo_of_flows().items()},
            "events": [] if self.events is None else [event.as_dict() for event in self.events],
            "verified_at": None if self.verified_at is None else self.verified_at.isoformat(),
            "verifications": [{"flow": one.flow, "equal": one.equal} for one in self.verifications],
            "recorded": [{**asdict(one), "at": one.at.isoformat()} for one in self.recorded],
        }

    def html(self) -> str:
        """Build the page."""
        sections = [
            ("Summary", self.sheet().html(zone=timezone.utc, rows=MAX_ROWS)),
            ("Verdicts", self.verdict.to_html(zone=timezone.utc, rows=MAX_ROWS)),
            ("Events", self._events_section()),
            ("Lag", self._lag_section()),
            ("Latency from produce to target", self._latency_section()),
            ("RPO: what would have been lost", self._rpo_section()),
            ("Verifications", self._verify_section()),
            ("Words", _glossary()),
        ]
        times = f"{format_time(self.start, zone=timezone.utc)} to {format_time(self.end, zone=timezone.utc)}; all times are UTC"
        body = "".join(f"<section><h2>{escape(title)}</h2>{content}</section>" for title, content in sections)
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{escape(self.title)} {self.end:%Y-%m-%d %H:%M} UTC</title><style>{_STYLE}</style></head>"
            f"<body><h1>{escape(self.title)}</h1><p>{escape(times)}</p>{body}</body></html>\n"
        )

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, which is replaced where it exists, and return its path.

        Raises:
            StoreError: the file cannot be written.

        Example:
            >>> mirror.report(since="24h").write("report.html")  # doctest: +SKIP
        """
        try:
            Path(path).write_text(self.html(), encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}",
                consequence="there is no report",
                remedy="name a file in a folder that exists: mirrorlake report --out report.html",
            ) from error
        return Path(path)

    # -- sections -------------------------------------------------------------------------------------------------

    def _summary(self) -> Table:
        columns = [
            "flow",
            "verdict",
            "hops",
            "offset lag",
            "time lag",
            "catches up in",
            "at risk",
            "RPO now",
            "RPO at most",
        ]
        rpo, rows = self._rpo_of_flows(), []
        for flow in sorted({*self.verdict.flows, *rpo}):
            hops = [hop for hop in self.verdict.hops if hop.key.flow == flow]
            lag, eta_ms = self._lag_of(flow)
            now, most = rpo.get(flow, (None, None))
            rows.append(
                (
                    flow,
                    badge(self.verdict.flows.get(flow, Verdict.UNKNOWN).label),
                    len(hops),
                    lag.offset_lag,
                    to_timedelta(lag.time_lag_ms),
                    # Nothing to catch up is no forecast.
                    to_timedelta(eta_ms or None),
                    self.verdict.at_risk_words(flow),
                    to_timedelta(now),
                    to_timedelta(most),
                )
            )
        return table("flows, from the source's end to the target", columns, rows)

    def _lag_of(self, flow: str) -> tuple[Total, int | None]:
        """Return the lag of a flow and its time to catch up, from its status; groups have their own lags."""
        status = None if self.verdict.status is None else self.verdict.status.get(flow)
        if status is not None:
            return Total(status.offset_lag if status.is_whole else None, status.time_lag_ms), status.eta_ms
        sent = self.verdict.of(flow, "republished")
        if not sent:
            return Total(None, None), None
        return sum_lags(hop.last for hop in sent), combine_known(max, (hop.catch_up.eta_ms for hop in sent))

    def _rpo_of_flows(self) -> dict[str, tuple[int | None, int | None]]:
        """Return by flow the newest RPO and the largest known one, in milliseconds."""
        found: dict[str, tuple[int | None, int | None]] = {}
        for point in self.rpo:
            before = found.get(point.flow, (None, None))[1]
            found[point.flow] = (
                point.data_ms,
                max((ms for ms in (before, point.data_ms) if ms is not None), default=None),
            )
        return found

    def _proofs(self) -> Table:
        rows: list[tuple[object, ...]] = [
            (
                one.flow,
                badge("equal" if one.equal else "different"),
                sum(partition.verified for partition in one.partitions),
                len(one.differences),
                self.verified_at,
            )
            for one in self.verifications
        ]
        rows += [
            (one.flow, badge("different") if one.differs else badge("proven", "good"), one.records, None, one.at)
            for one in self.recorded
        ]
        title = "last verification" if rows else "no verification is recorded: mirrorlake report --verify runs one"
        return table(title, ["flow", "result", "records verified", "differences", "at"], rows)

    def _events_section(self) -> str:
        if not self.events:
            return "<p>Nothing happened in this time, as far as the tables tell.</p>"
        return self.events.to_html(zone=timezone.utc, rows=MAX_ROWS)

    def _lag_section(self) -> str:
        # An idle group is days behind: on one scale with the mirror it would press that to the ground.
        of_mirror, of_groups = ([p for p in self.lag if p.is_group is wanted] for wanted in (False, True))
        marks = self.events.marks() if self.events else []
        rows = [(p.at, p.line, to_timedelta(p.time_lag_ms), p.offset_lag) for p in self.lag]
        return (
            _lag_charts("the mirror", of_mirror, marks)
            + (_lag_charts("consumer groups", of_groups, marks) if of_groups else "")
            + _series("lag in numbers", ["time", "hop", "time lag", "offset lag"], rows)
        )

    def _latency_section(self) -> str:
        points = [
            (f"{p.flow} {p.topic} {name}", p.at, value)
            for name in ("p50", "p99")
            for p in self.latency
            if (value := getattr(p, f"{name}_ms")) is not None
        ]
        rows = [
            (p.at, p.flow, p.topic, p.records, *map(to_timedelta, (p.p50_ms, p.p95_ms, p.p99_ms))) for p in self.latency
        ]
        columns = ["time", "flow", "topic", "records", "p50", "p95", "p99"]
        return chart("latency, p50 and p99", _lines(points), unit=DURATIONS) + _series(
            "latency in numbers", columns, rows
        )

    def _rpo_section(self) -> str:
        points = [(p.flow, p.at, p.data_ms) for p in self.rpo]
        rows = [(p.at, p.flow, to_timedelta(p.data_ms), p.records) for p in self.rpo]
        return chart("RPO", _lines(points), unit=DURATIONS, limits=self._limits()) + _series(
            "RPO in numbers", ["time", "flow", "RPO", "records"], rows
        )

    def _limits(self) -> dict[str, float]:
        """Return the RPO objectives by flow, in milliseconds."""
        return {
            f"objective of {one.flow}": 1000 * one.rpo_s for one in self.verdict.objectives if one.rpo_s is not None
        }

    def _verify_section(self) -> str:
        if not self.verifications and not self.recorded:
            return "<p>None is recorded: <code>mirrorlake report --verify</code> runs one.</p>"
        parts = []
        if self.recorded:
            columns = ["flow", "records compared", "at", "report"]
            known = [
                (r.flow, r.records, r.at, f"mirrorlake verify --of {r.verification} --report proof.html")
                for r in self.recorded
            ]
            parts.append(table("recorded by other processes", columns, known))
        for one in self.verifications:
            columns = ["topic", "generation", "partition", "records landed", "republished", "withheld", "verified"]
            columns += ["not republished", "not compared"]
            rows = [
                (
                    *(proof.topic, str(proof.generation), str(proof.partition), proof.landed, proof.republished),
                    *(proof.withheld, proof.verified, proof.not_republished, proof.not_compared),
                )
                for proof in one.partitions
            ]
            parts.append(table(f"{one.flow}: {'equal' if one.equal else 'DIFFERENT'}", columns, rows))
            if one.differences:
                columns = ["where", "problem", "topic", "partition", "offset", "records"]
                parts.append(table("differences", columns, one.differences))
        return "".join(part.html(zone=timezone.utc, rows=MAX_ROWS) for part in parts)


def _glossary() -> str:
    words = "".join(f"<dt>{escape(word)}</dt><dd>{escape(said)}</dd>" for word, said in _WORDS.items())
    return f"<dl>{words}</dl>"


def _series(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the newest rows as a table that is opened without a script."""
    newest = list(reversed(rows))
    return table(title, columns, newest, folded=True).html(zone=timezone.utc, rows=MAX_ROWS)


def _lag_charts(whose: str, points: Sequence[LagPoint], marks: Sequence[Mark]) -> str:
    time, offsets = ([(p.line, p.at, getattr(p, name)) for p in points] for name in ("time_lag_ms", "offset_lag"))
    return chart(f"time lag of {whose}", _lines(time), unit=DURATIONS, marks=marks) + chart(
        f"offset lag of {whose}", _lines(offsets), marks=marks
    )


def _lines(points: Iterable[tuple[str, datetime, float | None]]) -> list[Line]:
    by_name: dict[str, list[tuple[datetime, float | None]]] = {}
    for name, at, value in points:
        by_name.setdefault(name, []).append((at, value))
    return [Line(name, tuple(found)) for name, found in sorted(by_name.items())]


def make_report(
    lag: Lag,
    *,
    start: datetime,
    end: datetime,
    settings: str,
    verifications: Iterable[VerifyReport] = (),
    verified_at: datetime | None = None,
    recorded: Iterable[NewestProof] = (),
    events: Events | None = None,
    mirror: str = "",
    host: str = "",
) -> Report:
    """Build the report on a time range; times without samples, or before landing, are left out."""
    seconds = timedelta(seconds=bucket_s(start, end))
    try:
        verdict, over = lag.verdict(), lag_points(lag.query_over, start, end)
        rpo = rpo_points(lag.query_rpo, start, end)
    except UsageError:
        verdict, over, rpo = LagVerdict(hops=()), (), ()
    try:
        latency = latency_points(lag.query_latency(start, end, bucket=seconds))
    except UsageError:
        latency = ()
    return Report(
        start=start,
        end=end,
        settings=settings,
        verdict=verdict,
        lag=over,
        latency=latency,
        rpo=rpo,
        verifications=tuple(verifications),
        verified_at=verified_at,
        recorded=tuple(recorded),
        events=events,
        mirror=mirror,
        host=host,
    )
