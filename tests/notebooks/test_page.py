"""`mirrorlake console` in a real browser, on real brokers: its links, its token, and how every page reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, expect

from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import commit, create_topic, send, topic_name
from tests.servers.lab import screenshot, serious
from tests.servers.lakes import MakeMirror
from tests.servers.page import ConsolePage, console_page

ATTACK = b"<img src=x onerror=alert(1)>"
# A browser has no names outside of this machine to ask: whatever the page loads from elsewhere fails the test.
OURS = ("http://127.0.0.1", "blob:", "data:")
ALL_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
TABS = ("status", "events", "topics", "groups", "records", "tables", "recovery")


@dataclass(frozen=True)
class World:
    """The page of a mirror of one topic with 30 records in three partitions, and one that is no JSON, as rows of the table `sales`."""

    orders: str
    group: str
    page: ConsolePage


@pytest.fixture(scope="module")
def world(
    east: KafkaCluster, central: KafkaCluster, make_shared_mirror: MakeMirror, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    orders = topic_name("page")
    flow = {"source": "east", "target": "central", "topics": orders, "sync": {"groups": False}}
    tables = [{"topics": orders, "name": "sales"}]
    mirror = make_shared_mirror({"east": east, "central": central}, [flow], tables=tables)
    with console_page(Path(mirror.config.path or ""), tmp_path_factory.mktemp("pages") / "page.log") as page:
        create_topic(east, orders, 3)
        send(east, orders, [(json.dumps({"id": n}).encode(), str(n).encode(), n % 3) for n in range(30)])
        send(east, orders, [(ATTACK, b"attack", 0)])
        commit(east.bootstrap_servers, f"{orders}-audit", orders, {0: 5})
        mirror.apply()
        mirror.run(once=True)
        mirror.pause(flow="east->central", reason="to have an event")
        mirror.resume(flow="east->central")
        page.wait_ready()
        yield World(orders, f"{orders}-audit", page)
        assert page.token not in page.close(), "the token is printed once, and never logged"


@pytest.fixture
def tab(window: Page) -> Iterator[Page]:
    made = window.context.new_page()
    outside, refused, dialogs = list[str](), list[str](), list[str]()
    made.on("request", lambda request: request.url.startswith(OURS) or outside.append(request.url))
    made.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
    made.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    yield made
    made.close()
    assert [*outside, *refused, *dialogs] == []


def test_a_request_without_the_token_is_refused(world: World) -> None:
    for path in ("", "?token=wrong", "passport/east/t/0/1", "plotly.js"):
        for method in ("GET", "POST", "DELETE"):
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(world.page.root + path, method=method), timeout=30)  # noqa: S310
            assert refused.value.code == 403, (method, path)


def test_links_lead_from_records_to_a_passport_and_its_topics(world: World, tab: Page) -> None:
    tab.goto(world.page.link)
    tab.goto(f"{world.page.root}records?topic={world.orders}&partition=1")
    tab.get_by_role("link", name="4", exact=True).first.click()
    expect(tab).to_have_url(f"{world.page.root}passport/east/{world.orders}/1/4")
    expect(tab.locator("main")).to_contain_text("republished")
    expect(tab.locator("main")).to_contain_text('"id": 13')
    tab.get_by_role("link", name=f"east.{world.orders}-1@4").click()
    expect(tab).to_have_url(f"{world.page.root}topic/central/east.{world.orders}")
    tab.goto(f"{world.page.root}group/east-%3Ecentral/{world.group}")
    expect(tab.locator("main")).to_contain_text(world.group)
    tab.goto(f"{world.page.root}tables")
    tab.get_by_role("link", name="sales", exact=True).click()
    expect(tab.locator("main")).to_contain_text("30 rows")
    expect(tab.locator("main")).to_contain_text("the value is not JSON")


def test_every_page_reads_well_light_and_dark_wide_and_narrow(world: World, tab: Page) -> None:
    tab.goto(world.page.link)
    expect(tab).to_have_url(f"{world.page.root}status")
    tab.goto(f"{world.page.root}events")
    expect(tab.locator(".main-svg").first).to_be_visible()
    faults: dict[str, object] = {}
    paths = {
        **{name: name for name in TABS},
        "records": f"records?topic={world.orders}&contains=onerror",
    }
    # What is not a matter of colour is the same in both.
    for width, theme, rules in ((1280, "light", ALL_RULES), (800, "dark", ("color-contrast",))):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=theme)
        for name, path in paths.items():
            tab.goto(world.page.root + path)
            faults[f"{name} {width} {theme}"] = serious(tab, rules=rules)
            screenshot(tab, f"page-{name}-{width}")
    assert not any(faults.values()), json.dumps({view: found for view, found in faults.items() if found}, indent=1)
