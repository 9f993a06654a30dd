"""The report: one page that holds what the rows hold, and neither loads nor runs anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from mirrorlake.errors import StoreError
from mirrorlake.events import Event, Events
from mirrorlake.lag.hop_verdicts import HopKey
from mirrorlake.lag.judge import judge_windows
from mirrorlake.lag.report import Report
from mirrorlake.lag.series import LagPoint, LatencyPoint, RpoPoint
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.lag.verdict import Verdict
from mirrorlake.lake import NewestProof
from mirrorlake.model.verify import Difference, PartitionProof, VerifyReport
from tests.builders import NOON, hop_place, sample
from tests.unit.markup import ATTACKS, unwrapped
from tests.unit.values import report_page

FLOW = "east->central"
EVIL = '"><script src="https://evil.example/x.js"></script><img src=x onerror=alert(1)>'


class Tables(HTMLParser):
    """The rows of all tables of a page, and every tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._in_cell = False
        self.feed(unwrapped(page))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def minute(number: int) -> datetime:
    return NOON + timedelta(minutes=number)


def a_report(*, group: str = "billing", topic: str = "orders") -> Report:
    def window(hop: str, positions: list[int]) -> tuple[HopKey, list[LagSample]]:
        place = hop_place(hop, group if hop == "consumed" else None, topic=topic, cluster="central")
        looks = enumerate(positions)
        return place, [sample(minute(m), at, 1000, waiting=NOON, lag_ms=m * 60_000) for m, at in looks]

    windows = dict([window("republished", [100, 200, 300]), window("consumed", [7, 7, 7])])
    line = f"east->central consumed by {group}"
    delays = {"p50_ms": 500.0, "p95_ms": 900}
    counts = {"landed": 1000, "republished": 300, "withheld": 0, "verified": 299}
    proof = PartitionProof(topic=topic, generation=1, partition=0, **counts)
    altered = Difference(where="target", problem="altered", topic=topic, partition=0, offset=17)
    return Report(
        start=NOON,
        end=minute(2),
        settings="0123456789abcdef",
        verdict=judge_windows(windows, now=minute(2)),
        lag=tuple(LagPoint(at=minute(m), line=line, time_lag_ms=m * 60_000, offset_lag=993 * m) for m in range(3)),
        latency=tuple(
            LatencyPoint(at=minute(m), flow=FLOW, topic=topic, records=10 * m, p99_ms=1500.0 + m, **delays)
            for m in range(3)
        ),
        rpo=tuple(RpoPoint(at=minute(m), flow=FLOW, records=m, data_ms=ms) for m, ms in enumerate([0, 90_000, 4000])),
        verifications=(VerifyReport(flow=FLOW, equal=False, partitions=(proof,), differences=(altered,)),),
        verified_at=minute(1),
    )


def test_the_page_holds_the_summary_the_verdicts_and_every_series_as_tables() -> None:
    rows = Tables(a_report().html()).rows
    [summary] = [row for row in rows if row[0] == "east->central" and len(row) == 9 and row[1] == "✓ OK"]
    assert summary[2:] == ["2", "700", "2 min 0 s", "7 min 0 s", "0 partitions", "4.0 s", "1 min 30 s"]
    assert ["east->central", "✗ different", "299", "1", "2026-01-01 12:01:00 UTC"] in rows
    assert ["2026-01-01 12:02:00 UTC", "east->central consumed by billing", "2 min 0 s", "1 986"] in rows
    lag = [row[0][11:16] for row in rows if row[1:2] == ["east->central consumed by billing"]]
    assert lag == ["12:02", "12:01", "12:00"], "every row, the newest first"
    assert ["2026-01-01 12:01:00 UTC", "east->central", "orders", "10", "500 ms", "900 ms", "1.5 s"] in rows
    assert ["2026-01-01 12:01:00 UTC", "east->central", "1 min 30 s", "1"] in rows
    assert ["target", "altered", "orders", "0", "17", "1"] in rows
    assert "0123456789abcdef" in a_report().html()


def test_the_pictures_hold_the_same_figures_as_the_tables() -> None:
    titles = re.findall("<title>([^<]*)</title>", a_report().html())
    for said in (
        "east-&gt;central consumed by billing 2026-01-01T12:02:00+00:00 2 min 0 s",
        "east-&gt;central consumed by billing 2026-01-01T12:02:00+00:00 1 986",
        "east-&gt;central orders p99 2026-01-01T12:01:00+00:00 1.5 s",
        "east-&gt;central 2026-01-01T12:01:00+00:00 1 min 30 s",
    ):
        assert said in titles


def test_an_outage_is_a_row_and_shaded_in_the_pictures_of_lag() -> None:
    away = Event(at=minute(1), until=minute(2), kind="cluster away", subject="central", why="no broker answers")
    report = replace(a_report(), events=Events(start=NOON, end=minute(2), events=(away,)))
    rows = Tables(report.html()).rows
    assert ["12:01:00", "12:02:00", "1 min 0 s", "✗ cluster away", "central", "no broker answers"] in rows
    assert report.html().count("<rect") == 2, "in both pictures of lag"
    assert [one["kind"] for one in report.as_dict()["events"]] == ["cluster away"]
    assert "Nothing happened" in a_report().html()


def test_the_page_loads_and_runs_nothing_whatever_topics_and_groups_are_called() -> None:
    page = a_report(group=EVIL, topic=EVIL).html()
    tags = Tables(page).tags
    assert not {tag for tag, _ in tags} & {"script", "img", "link", "iframe", "object", "a", "base", "form"}
    for tag, attributes in tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "href", "action")], tag
    assert "url(" not in page
    policy = next(attributes for tag, attributes in tags if tag == "meta" and "http-equiv" in attributes)
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


@pytest.mark.parametrize("text", ATTACKS)
def test_the_tags_of_a_page_are_the_same_whatever_others_wrote(text: str) -> None:
    assert [tag for tag, _ in Tables(report_page(text).html()).tags] == [
        tag for tag, _ in Tables(report_page("plain").html()).tags
    ]


def test_a_report_is_a_summary_as_text_and_a_document() -> None:
    report = a_report()
    assert "OK" in str(report)
    assert "RPO at most" in str(report)
    document = json.loads(json.dumps(report.as_dict()))
    assert document["rpo"] == {"east->central": {"now_ms": 4000, "most_ms": 90_000}}
    assert document["verifications"] == [{"flow": "east->central", "equal": False}]
    assert (document["lag"]["verdict"], document["lag"]["hops"][0]["verdict"]) == ("OK", "STALL"), "a group's"


def test_a_verification_that_another_process_ran_is_named_with_the_command_that_shows_it() -> None:
    proof = NewestProof(flow=FLOW, verification="v7", at=minute(1), records=2475, differs=False)
    report = replace(a_report(), verifications=(), recorded=(proof,))
    for said in (str(report), report.html()):
        assert "no verification is recorded" not in said
        assert "None is recorded" not in said
        assert "2 475" in said
    assert "mirrorlake verify --of v7 --report proof.html" in unwrapped(report.html())
    [document] = json.loads(json.dumps(report.as_dict()))["recorded"]
    assert (document["verification"], document["records"], document["differs"]) == ("v7", 2475, False)


def test_what_is_not_known_is_said() -> None:
    empty = Report(start=NOON, end=minute(1), settings="x", verdict=judge_windows({}, now=NOON))
    page = empty.html()
    assert empty.verdict.verdict is Verdict.UNKNOWN
    assert page.count("nothing is known of this time") == 4
    assert "mirrorlake report --verify" in page
    unknown = replace(a_report(), rpo=(RpoPoint(at=NOON, flow="east->central", records=1, data_ms=None),))
    assert unknown.as_dict()["rpo"] == {"east->central": {"now_ms": None, "most_ms": None}}


def test_it_is_written_to_a_file_or_says_why_not(tmp_path: Path) -> None:
    report = a_report()
    assert report.write(tmp_path / "report.html").read_text(encoding="utf-8") == report.html()
    with pytest.raises(StoreError, match="cannot be written"):
        report.write(tmp_path / "nowhere" / "report.html")


def test_the_page_names_its_mirror_its_host_and_every_word_it_uses() -> None:
    page = replace(a_report(), mirror=EVIL, host="node-7").html()
    assert "<h1>mirrorlake report · &quot;&gt;&lt;script" in page
    assert "made on node-7" in page
    words = re.findall(r"<dt>(.*?)</dt>", page)
    headings = {"offset lag", "time lag", "catches up in", "at risk", "hop", "verdict", "verified", "not compared"}
    assert headings | {"RPO", "RTO", "latency", "proven until"} <= {*words}
    assert "@media print" in page


def test_lines_have_their_names_at_their_ends_and_none_is_written_over_another() -> None:
    names = [f"east->central {'orders' * 8} {at}" for at in range(12)]
    points = tuple(LagPoint(at=NOON, line=name, time_lag_ms=5, offset_lag=5) for name in names)
    page = replace(a_report(), lag=points).html()
    figure = page[page.index("<figcaption>time lag") :].partition("</svg>")[0]
    labels = re.findall(
        r'<text x="(\d+)" y="([\d.]+)" font-size="10"><tspan fill="(#\w+)">(.)</tspan> (.*?)</text>', figure
    )
    assert len(labels) == len(names)
    heights = sorted(float(label[1]) for label in labels)
    assert min(b - a for a, b in pairwise(heights)) >= 10
    assert heights[-1] <= 240
    assert len({label[2:4] for label in labels}) == len(names), "two lines have one colour and one marker"
    assert all(label[4].endswith(f"orders {at}") or "…" in label[4] for at, label in enumerate(labels))
