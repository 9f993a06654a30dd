"""`mirrorlake console` in a real browser, on real brokers: its links, its token, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, expect

from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console.window import TABS
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import commit, create_topic, send, topic_name
from tests.servers.lab import CUT, SLOW, screenshot, serious
from tests.servers.lakes import MakeMirror
from tests.servers.page import ConsolePage, console_page

FLOW = "east->central"
ATTACK = b"<img src=x onerror=alert(1)>"
# A browser has no names outside of this machine to ask: whatever the page loads from elsewhere fails the test.
OURS = ("http://127.0.0.1", "ws://127.0.0.1", "blob:", "data:")
ALL_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@dataclass(frozen=True)
class World:
    """A mirror of one topic with 30 records in three partitions, and one that is no JSON; its page, and one that may write.

    The records are rows of the table `sales`.
    """

    orders: str
    group: str
    mirror: Mirror
    page: ConsolePage
    writing: ConsolePage


@pytest.fixture(scope="module")
def world(
    east: KafkaCluster, central: KafkaCluster, make_shared_mirror: MakeMirror, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    orders = topic_name("page")
    flow = {"source": "east", "target": "central", "topics": orders, "sync": {"groups": False}}
    tables = [{"topics": orders, "name": "sales"}]
    mirror = make_shared_mirror({"east": east, "central": central}, [flow], tables=tables)
    conf, folder = Path(mirror.config.path or ""), tmp_path_factory.mktemp("pages")
    with (
        console_page(conf, folder / "page.log") as page,
        console_page(conf, folder / "writing.log", "--write") as writing,
    ):
        create_topic(east, orders, 3)
        send(east, orders, [(json.dumps({"id": n}).encode(), str(n).encode(), n % 3) for n in range(30)])
        send(east, orders, [(ATTACK, b"attack", 0)])
        commit(east.bootstrap_servers, f"{orders}-audit", orders, {0: 5})
        mirror.apply()
        mirror.run(once=True)
        page.wait_ready()
        writing.wait_ready()
        yield World(orders, f"{orders}-audit", mirror, page, writing)
        assert page.token not in page.close(), "the token is printed once, and never logged"


@pytest.fixture
def tab(window: Page) -> Iterator[Page]:
    made = window.context.new_page()
    outside, refused = list[str](), list[str]()
    made.on("request", lambda request: request.url.startswith(OURS) or outside.append(request.url))
    made.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
    yield made
    made.close()
    assert not outside
    assert not refused, "as of the page that is left, and ends its kernel"


def test_a_request_without_the_token_is_refused(world: World) -> None:
    for path in ("", "?token=wrong", "passport/east/t/0/1", "voila/static/voila.js", "api/kernels/x"):
        for method in ("GET", "POST", "DELETE"):
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(world.page.root + path, method=method), timeout=30)  # noqa: S310
            assert refused.value.code == 403, (method, path)


def test_links_lead_to_a_group_and_a_record(world: World, tab: Page) -> None:
    record = f"passport/east/{world.orders}/1/4"
    # The first address of a browser has the token.
    visit(tab, world.page.link_to(record))
    passport, same = tab.locator(".ml-passport"), tab.locator(".ml-records-target tr", has_text="same record")
    expect(passport).to_contain_text(f"east.{world.orders}-1@4")
    expect(same).to_have_count(1)
    expect(passport).to_contain_text(re.compile(r"\.\d{3} UTC \(\+[\d.]+ m?s\)"))
    faults = serious(tab, rules=ALL_RULES)
    screenshot(tab, "page-passport", at=passport)
    tab.locator(".ml-records-source tbody tr").nth(2).click()
    expect(tab.locator(".ml-address-link")).not_to_have_attribute("href", world.page.root + record)
    elsewhere = tab.url
    assert elsewhere.startswith(world.page.root + f"passport/east/{world.orders}/1/")
    tab.go_back()
    expect(tab.locator(".ml-address-link")).to_have_attribute("href", world.page.root + record)

    visit(tab, world.page.root + f"group/east-%3Ecentral/{world.group}")
    expect(tab.locator(f'.ml-groups-rows tr[data-key="{world.group}"] input[type=checkbox]')).to_be_checked()
    expect(tab.locator(".ml-errors")).to_be_hidden()
    assert not faults, json.dumps(faults, indent=1)


def test_a_table_and_every_tab_read_well_light_and_dark_wide_and_narrow_and_change_nothing(
    world: World, tab: Page
) -> None:
    visit(tab, world.page.link)
    expect(tab.locator(".ml-status-rows")).to_contain_text(world.orders)
    expect(tab).to_have_url(world.page.root + "status")
    assert tab.locator(".ml-console").bounding_box()["width"] > 1200, "the whole width"  # type: ignore[index]

    open_tab(tab, "Tables")
    row = tab.locator('.ml-tables-rows tr[data-key="sales"]')
    expect(row).to_contain_text("✓ OK")
    expect(row.locator("[data-column=bad]")).to_have_text("1")
    row.get_by_role("link", name="sales", exact=True).click()
    expect(tab).to_have_url(world.page.root + "table/sales")
    page, newest = tab.locator(".ml-tables-page"), tab.locator(".ml-tables-newest tbody tr")
    expect(page).to_contain_text("30 rows")
    expect(page).to_contain_text("the value is not JSON")
    expect(tab.locator('.ml-tables-columns tr[data-key="id"]')).to_contain_text("BIGINT")
    expect(newest).to_have_count(20)
    # The last three were produced in one moment, each to a partition.
    expect(newest.first.locator("[data-column=id]")).to_have_text(re.compile("^2[789]$"))

    for name in ("topics", "groups", "recovery"):
        open_tab(tab, name.capitalize())
        tab.locator(f".ml-{name}-look").click()
    expect(tab.locator(".ml-recovery-objectives")).to_contain_text(FLOW)
    open_tab(tab, "Set up")
    steps = tab.locator(".ml-steps > .lm-TabBar [role=tab]").all_inner_texts()
    views = [("Set up", step) for step in steps] + [(name, "") for name in TABS[1:]]
    faults: dict[str, object] = {}
    # What is not a matter of colour is the same in both.
    for width, theme, rules in ((1280, "light", ALL_RULES), (800, "dark", ("color-contrast",))):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=theme)
        for name, step in views:
            open_tab(tab, name)
            if step:
                tab.locator(".ml-steps").get_by_role("tab", name=step, exact=True).click()
            view = f"{step or name} {width} {theme}"
            faults[view] = serious(tab, rules=rules) + tab.evaluate(CUT)
            screenshot(tab, f"page-{(step or name).lower().replace(' ', '-')}-{width}")
    expect(tab.locator(".ml-errors")).to_be_hidden()
    assert not any(faults.values()), json.dumps({view: found for view, found in faults.items() if found}, indent=1)

    tab.set_viewport_size({"width": 1280, "height": 900})
    topic = world.page.root + f"topic/east/{world.orders}"
    open_tab(tab, "Status")
    tab.locator(f'.ml-status-rows tr[data-key="{FLOW}/{world.orders}"] .ml-grid-link').click()
    expect(tab).to_have_url(topic)
    row = tab.locator(f'.ml-topics-rows tr[data-key="{world.orders}"]')
    expect(row.locator("input[type=checkbox]")).to_be_checked()
    open_tab(tab, "Tables")
    page.get_by_role("link", name=world.orders).click()
    expect(tab).to_have_url(topic)
    row.get_by_role("link", name=f"east.{world.orders}").click()
    expect(tab).to_have_url(world.page.root + f"topic/central/east.{world.orders}")
    expect(tab.locator(".ml-errors")).to_be_hidden()

    # Whatever a browser sends.
    open_tab(tab, "Set up")
    tab.get_by_role("tab", name="4 Run").click()
    pause = tab.locator(".ml-run-pause")
    expect(pause).to_be_disabled()
    expect(pause).to_have_attribute("title", "read-only: to change things, start mirrorlake console --write")
    pause.evaluate("one => { one.disabled = false; one.click(); }")
    expect(tab.locator(".ml-errors")).to_contain_text("nothing was changed")
    assert world.mirror.status()[FLOW].state != "paused"


def test_a_slow_page_that_may_write_pauses_and_resumes(world: World, tab: Page) -> None:
    tab.add_init_script(SLOW)
    visit(tab, world.writing.link_to("set-up"))
    tab.get_by_role("tab", name="4 Run").click()
    tab.locator(".ml-run-pause").click()
    expect(tab.locator(".ml-run-said")).to_contain_text("landing goes on")
    assert world.mirror.status()[FLOW].state == "paused"
    tab.locator(".ml-run-resume").click()
    expect(tab.locator(".ml-run-said")).to_contain_text("resumed")
    open_tab(tab, "Status")
    expect(tab.locator(".ml-status-rows")).to_contain_text(world.orders)


def visit(page: Page, address: str) -> None:
    """Open an address; again where the page's server lost messages of the console, as it does now and then at a load of 15."""
    for _ in range(3):
        page.goto(address)
        lost = page.get_by_text("model not found")
        with suppress(AssertionError):
            expect(page.locator(".ml-console").or_(lost).first).to_be_visible(timeout=150_000)
            if not lost.count():
                return
    raise AssertionError(f"{address} lost its console three times")


def open_tab(page: Page, name: str) -> None:
    page.locator(".ml-tabs").get_by_role("tab", name=name, exact=True).click()
