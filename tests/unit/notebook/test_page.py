"""The page of `mirrorlake console` without a browser: its token, its links, what it refuses, and what it shows of what others wrote."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from starlette.testclient import TestClient

from mirrorlake.errors import ClusterError
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import Exact
from mirrorlake.model.plan import Change, Plan
from mirrorlake.notebook import fragments
from mirrorlake.notebook.fragments import RecordsQuery, record_html
from mirrorlake.notebook.web.page import SHARED_FOR, TABS, build_app
from mirrorlake.records.page import Page
from mirrorlake.records.record import LandedIn, Outcome, Passport
from mirrorlake.render import link
from mirrorlake.status.status import Status
from tests.builders import browsed, mirror_config, page_of, passport_of
from tests.unit.markup import Markup
from tests.unit.notebook.kit import EVIL, NOW, Clock
from tests.unit.values import partition_status, status

FLOW = "east->west"
TOKEN = "the-token"  # noqa: S105


class Library:
    """Stands for a mirror whose records are known: offsets 3 and 4 of `orders`, republished as 13 and 14."""

    def __init__(self, *, placement: Any = "keep") -> None:
        self.config = Mirror(mirror_config({"placement": placement})).config
        self.asked: list[Any] = []
        self.away = ""

    def browse(self, cluster: str, topic: str, partition: int | None, *, relay: bool, **seek: Any) -> Page:
        self.asked.append((cluster, partition, relay, seek.get("offset")))
        if cluster == self.away and not relay:
            raise ClusterError(f"cluster {cluster} does not answer", remedy="wait")
        first, where = 13 if cluster == "west" else 3, {"topic": topic, "partition": partition or 0}
        odd = {"key": EVIL.encode(), "value": EVIL.encode(), "headers": ((EVIL, EVIL.encode()), (EVIL, None))}
        records = [browsed(offset, **where, **odd) for offset in (first, first + 1)]
        return page_of(records, **where, start=first, end=first + 3, first=0, cluster=cluster)

    def translate(self, flow: str, *, topic: str, partition: int, offset: int, reverse: bool) -> Exact:
        assert (flow, topic) == (FLOW, "orders")
        if reverse:
            return Exact(partition=SourcePartition("orders", 1, 2), offset=offset - 10)
        return Exact(partition=TopicPartition("east.orders", partition), offset=offset + 10)

    def passport(self, cluster: str, topic: str, partition: int, offset: int) -> Passport:
        self.asked.append(("passport", cluster, topic, partition, offset))
        sent = {"place": TopicPartition("east.orders", 0), "offset": 13, "rule": EVIL}
        outcome = Outcome(flow=FLOW, target="west", status="republished", words=EVIL, **sent)
        return passport_of(3, outcome, words=EVIL, landed=LandedIn(file=EVIL, landed_at_ms=0))

    def status(self, flow: str | None) -> Status:
        self.asked.append(flow)
        return Status(flows=(status(FLOW, partition_status()),), observed_at=NOW)

    def __getitem__(self, flow: str) -> Library:
        assert flow == FLOW
        return self

    @property
    def lag(self) -> Any:
        return Mirror(mirror_config()).lag


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stranger(library: Library, clock: Clock) -> TestClient:
    mirror: Any = library
    return TestClient(build_app(mirror, token=TOKEN, port=1, now=clock), follow_redirects=False)


@pytest.fixture
def visitor(stranger: TestClient) -> TestClient:
    assert stranger.get(f"/?token={TOKEN}").status_code == 303
    return stranger


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/status", "/?token=wrong", "/plotly.js", "/nowhere"])
def test_a_request_without_the_token_is_refused(stranger: TestClient, method: str, path: str) -> None:
    assert stranger.request(method, path).status_code == 403


def test_the_token_is_exchanged_for_a_cookie_that_does_not_tell_it(stranger: TestClient) -> None:
    answer = stranger.get(f"/flow/a%2Fb?x=1&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/flow/a%2Fb?x=1")
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert (
        stranger.get(f"http://testserver//evil.example?token={TOKEN}").headers["location"].startswith("/evil.example")
    )


@pytest.mark.law("H")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_but_get_exists(visitor: TestClient, library: Library, method: str) -> None:
    for path in ("/status", "/groups", f"/?token={TOKEN}"):
        assert visitor.request(method, path).status_code == 405
    assert library.asked == []


def test_every_page_allows_no_script_and_no_address_but_its_own(visitor: TestClient) -> None:
    for path in ("/status", "/records", "/nowhere", "/page.js"):
        answer = visitor.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "<script>" not in answer.text
    assert "Plotly" in visitor.get("/plotly.js").text


def test_links_lead_to_what_they_name_and_are_shared_for_a_moment(
    visitor: TestClient, library: Library, clock: Clock
) -> None:
    assert visitor.get("/").headers["location"] == "/status"
    page = visitor.get("/flow/east-%3Ewest")
    assert page.status_code == 200
    assert "caught_up" in page.text
    assert 'data-refresh="30"' in page.text
    visitor.get("/flow/east-%3Ewest")
    assert library.asked == [FLOW]
    clock.time += SHARED_FOR + timedelta(seconds=1)
    visitor.get("/flow/east-%3Ewest")
    assert library.asked == [FLOW, FLOW]
    for tab in TABS:
        assert f'href="/{tab}"' in page.text


@pytest.mark.parametrize(
    "path", ["nowhere", "flow", "topic/east", "passport/east/t/x/1", "passport/east/t/0/%C2%B2", "passport/east/t/0"]
)
def test_a_link_that_leads_nowhere_says_so(visitor: TestClient, path: str) -> None:
    answer = visitor.get(f"/{path}")
    assert answer.status_code == 404
    assert "names nothing on this page" in answer.text


def test_a_failure_is_on_the_page_in_words(visitor: TestClient, library: Library) -> None:
    library.status = lambda _: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    answer = visitor.get("/status")
    assert answer.status_code == 502
    assert "ZeroDivisionError" in answer.text


def test_records_are_read_on_every_side_by_itself_and_lead_to_their_passport(
    visitor: TestClient, library: Library
) -> None:
    library.away = "west"
    shown = visitor.get("/records", params={"flow": FLOW, "topic": "orders", "where": EVIL}).text
    assert library.asked == [("east", None, False, None), ("east", None, True, None), ("west", None, False, None)]
    assert "cluster west does not answer" in shown
    assert '<a href="/passport/east/orders/0/3">3</a>' in shown
    assert "<img" not in shown
    assert f'name="where" value="{EVIL}"' in unescape(shown), "what was sent stays in the form"
    passport = visitor.get("/passport/east/orders/0/3").text
    assert "republished" in passport
    assert "<img" not in passport
    assert unescape(passport).count(EVIL) > 3
    library.away = "east"
    assert "the cluster" not in visitor.get("/passport/east/orders/0/4").text, "from the relay"


@pytest.mark.parametrize(("side", "upstream"), [("source", 1), ("target", 2)])
def test_an_offset_on_one_side_finds_its_place_on_the_others(library: Library, side: str, upstream: int) -> None:
    mirror: Any = library
    query = RecordsQuery(flow=FLOW, topic="orders", partition=1, side=side, offset=13 if side == "target" else 3)
    fragments.records(mirror, query)
    assert set(library.asked) == {("west", 1, False, 13), ("east", upstream, False, 3), ("east", upstream, True, 3)}
    without = fragments.records(mirror, RecordsQuery(flow=FLOW, topic="orders", offset=3))
    assert without.html.count("an offset is one of a partition") == 3


def test_where_the_flow_chooses_partitions_all_of_the_target_are_read() -> None:
    library: Any = Library(placement={"by": "key", "count": 12})
    fragments.records(library, RecordsQuery(flow=FLOW, topic="orders", partition=1))
    assert [(cluster, partition) for cluster, partition, *_ in library.asked] == [
        ("east", 1),
        ("east", 1),
        ("west", None),
    ]


def test_odd_records_are_shown_as_they_are() -> None:
    assert "‹null›" in record_html(browsed(1, value=None))
    assert "‹empty›" in record_html(browsed(1, value=b""))
    assert "  &quot;a&quot;: 1.10" in record_html(browsed(1, value=b'{"a":1.10}')), "a number as it was written"
    assert "\x1b" not in record_html(browsed(1, value=b"a\x1b[31m"))
    assert "‹U+202E›" in record_html(browsed(1, value="\u202eevil".encode()))
    assert "ff 00" in record_html(browsed(1, value=b"\xff\x00"))
    assert "&lt;script" in record_html(browsed(1, value=EVIL.encode()))
    assert len(record_html(browsed(1, value=b"x" * 2**22))) < 2**19, "a page is no place for megabytes"


def test_a_topic_in_a_plan_is_a_link_and_a_name_cannot_make_one() -> None:
    evil = '"><a data-opens="topic/east/other">x'
    changes = [
        Change(where="west", kind="topic", name=name, action=action)
        for name, action in (("orders", "set_configs"), (evil, "add_partitions"), ("new", "create"))
    ]
    html = Plan(tuple(changes)).to_html(rows=None)
    links = re.findall(r'<a data-opens="([^"]*)">', html)
    assert links == ["topic/west/orders", link("topic", "west", evil)], "a topic to come has no page yet"
    assert not Markup(html).foreign
