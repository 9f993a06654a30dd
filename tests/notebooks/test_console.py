"""The console of a mirror that runs, in JupyterLab in a real browser, beside many topics and odd records.

One world and one open page serve every test of the file; each walks a tab. Pictures are kept in `build/screenshots`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, expect

from mirrorlake.config import load
from mirrorlake.mirror import Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import wait_until
from tests.kit.records import commit, create_topic, odd_record, send, send_transactions, topic_name, topics_of
from tests.servers.lab import CUT, WAIT_MS, Lab, open_notebook, screenshot, serious, write_notebook
from tests.servers.lakes import MakeMirror

ATTACK = b"<img src=x onerror=alert(1)>"
FLOW = "east->central"
MANY = 60
# What is not read again by itself is stale after 15 s, for which a busy machine may take to show it.
CONSOLE = """\
import mirrorlake as ml
from datetime import timedelta

shown = ml.console(ml.load({conf!r}))
shown.topics.pulse._limit = timedelta(minutes=10)
shown"""


@dataclass(frozen=True)
class World:
    """A mirror of two topics among many, its settings file, and the page that shows its console."""

    prefix: str
    mirror: Mirror
    conf: Path
    page: Page
    dialogs: list[str]

    @property
    def orders(self) -> str:
        """Three partitions: JSON in transactions, some aborted, then odd records, the last of them a script."""
        return f"{self.prefix}.orders"

    @property
    def payments(self) -> str:
        """Two partitions of JSON, in step."""
        return f"{self.prefix}.payments"

    @property
    def group(self) -> str:
        """A group without members that read part of `orders`."""
        return f"{self.prefix}-audit"

    def tab(self, name: str) -> None:
        self.page.locator(".ml-tabs").get_by_role("tab", name=name, exact=True).click()


@pytest.fixture(scope="module")
def world(
    lab: Lab,
    window: Page,
    east: KafkaCluster,
    central: KafkaCluster,
    make_shared_mirror: MakeMirror,
) -> Iterator[World]:
    prefix = topic_name("first")
    mirror = make_shared_mirror(
        {"east": east, "central": central}, [{"source": "east", "target": "central", "topics": rf"{prefix}\.\w+"}]
    )
    names = [f"{prefix}.many.{number:03}" for number in range(MANY - 1)]
    names.append(f"{prefix}.many.{'long-' * 50}"[:249])
    fill(east, prefix, names)
    mirror.apply()
    mirror.run(once=True)
    conf = Path(mirror.config.path or "")
    write_notebook(lab, "console.ipynb", CONSOLE.format(conf=str(conf)))
    dialogs: list[str] = []
    window.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    yield World(prefix, mirror, conf, open_notebook(lab, window, "console.ipynb"), dialogs)
    lab.end_kernels()
    admin = AdminClient({"bootstrap.servers": east.bootstrap_servers})
    wait(admin.delete_topics(names).values())


def fill(east: KafkaCluster, prefix: str, names: list[str]) -> None:
    orders, payments = f"{prefix}.orders", f"{prefix}.payments"
    create_topic(east, orders, 3)
    create_topic(east, payments, 2)
    admin = AdminClient({"bootstrap.servers": east.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result()
    wait_until(lambda: set(names) <= set(admin.list_topics(timeout=60).topics), "all topics are in the metadata")
    parts = [[order(number) for number in range(first, first + 10)] for first in range(0, 60, 10)]
    send_transactions(east, orders, [(part, at % 3 != 2) for at, part in enumerate(parts)])
    rng = random.Random(7)
    send(east, orders, [odd_record(rng, number) for number in range(30)])
    send(east, orders, [(ATTACK, b"attack", 0)])
    send(east, payments, [order(number, partitions=2) for number in range(200)])
    commit(east, f"{prefix}-audit", orders, {0: 5})


def order(number: int, *, partitions: int = 3) -> tuple[bytes, bytes, int]:
    value = {"id": number, "customer": {"id": number % 7, "name": "Zoë"}, "total": number * 1.5}
    return json.dumps(value).encode(), str(number).encode(), number % partitions


def test_topics_are_searched_opened_and_handed_to_the_set_up(world: World) -> None:
    page = world.page
    world.tab("Topics")
    page.locator(".ml-topics-cluster select").select_option("east")
    page.locator(".ml-topics-look").click()
    told = page.locator(".ml-topics-matches")
    expect(told).to_contain_text("not shown")
    expect(page.locator(".ml-topics-fresh")).to_contain_text("live")
    page.locator(".ml-topics-matching input").fill(rf"{world.prefix}\..*")
    expect(told).to_contain_text(f"{MANY + 2} of")
    page.locator(".ml-topics-matching input").fill(rf"{world.prefix}\.\w+")
    expect(told).to_contain_text("2 of")
    rows = page.locator(".ml-topics-rows tbody tr")
    expect(rows).to_have_count(2)
    orders = page.locator(f'.ml-topics-rows tr[data-key="{world.orders}"]')
    expect(orders).to_contain_text("✓ central: ")
    expect(orders.locator("td").last).to_contain_text(f"central: east.{world.orders}")
    orders.locator("input[type=checkbox]").check()
    page.locator(".ml-topics-use").click()
    expect(page.locator(".ml-flow-topics input")).to_have_value(world.orders)
    expect(page.locator(".ml-flow-source select")).to_have_value("east")
    expect(page.locator(".ml-errors")).to_be_hidden()


def test_a_status_opens_to_partitions_and_its_chart_takes_the_theme(world: World) -> None:
    page = world.page
    world.tab("Status")
    key = f"{FLOW}/{world.payments}"
    row = page.locator(f'.ml-status-rows tr[data-key="{key}"]')
    expect(row).to_contain_text("✓ OK")
    expect(row).to_contain_text("nothing waits")
    row.locator(".ml-grid-open").click()
    expect(page.locator(f'.ml-status-rows tr[data-key="{key}-0"]')).to_contain_text("partition 0")
    expect(page.locator(".ml-status-fresh")).to_contain_text("live")
    chart = page.locator(".ml-lag-chart .main-svg").first
    expect(chart).to_be_visible()
    wanted = page.evaluate("getComputedStyle(document.body).getPropertyValue('--jp-ui-font-color1').trim()")
    probe = "colour => { const d = document.createElement('div'); d.style.color = colour; document.body.append(d);"
    colour = page.evaluate(f"{probe} const c = getComputedStyle(d).color; d.remove(); return c; }}", wanted)
    # Plotly makes its titles again whenever its place changes.
    expect(page.locator(".ml-lag-chart .xtitle").first).to_have_css("fill", colour)
    page.locator(".ml-lag-measure select").select_option("Offset lag")
    expect(page.locator(".ml-lag-chart .ytitle").first).to_have_text("offsets")


def test_records_are_looked_for_followed_and_found_again_on_the_other_sides(world: World, east: KafkaCluster) -> None:
    page = world.page
    world.tab("Records")
    expect(page.locator(".ml-records-topics")).to_contain_text("2 topics")
    page.locator(".ml-records-topic input").fill(world.orders)
    expect(page.locator(".ml-records-partition option")).to_have_count(4)
    rows = {side: page.locator(f".ml-records-{side} tbody tr") for side in ("source", "relay", "target")}
    page.locator(".ml-records-look").click()
    for side in rows:
        expect(rows[side]).to_have_count(20)

    where = page.locator(".ml-records-where input")
    where.fill("$.customer.id = 3")
    where.press("Tab")
    page.locator(".ml-records-look").click()
    expect(page.locator(".ml-records-source-head")).to_contain_text("looked through")
    expect(rows["source"].first).to_contain_text('"id": 45')  # of customer 3; 52 was aborted
    rows["source"].first.click()
    value = page.locator(".ml-record-content")
    expect(value).to_contain_text('"customer": {')
    for side in ("relay", "target"):
        expect(page.locator(f".ml-records-{side} tbody tr", has_text="same record")).to_have_count(1)
    page.locator(".ml-record-format").get_by_role("button", name="Hex").click()
    expect(value).to_contain_text("00000000  7b")
    for said in ("republished", f"east.{world.orders}-", ".parquet"):
        expect(page.locator(".ml-passport")).to_contain_text(said)

    where.fill("")
    where.press("Tab")
    page.locator(".ml-records-contains input").fill("onerror")
    page.locator(".ml-records-contains input").press("Tab")
    page.locator(".ml-records-look").click()
    expect(rows["target"]).to_have_count(1)
    rows["target"].click()
    expect(value).to_contain_text(ATTACK.decode())
    page.locator(".ml-records-contains input").fill("")
    page.locator(".ml-records-contains input").press("Tab")

    page.locator(".ml-records-tail").click()
    expect(page.locator(".ml-records-source-head")).to_contain_text("live")
    send(east, world.orders, [(b"while it is watched", b"live", 1)])
    expect(rows["source"].first).to_contain_text("while it is watched")
    page.locator(".ml-records-tail-stop").click()
    expect(page.locator(".ml-records-source-head")).to_contain_text("stopped")
    expect(page.locator(".ml-errors")).to_be_hidden()
    assert not world.dialogs, "record content is text, and no script"


def test_chosen_groups_are_moved_by_the_plan_that_was_shown(world: World, east: KafkaCluster) -> None:
    page = world.page
    late = f"{world.prefix}-late"
    commit(east, late, world.orders, {0: 3})
    world.tab("Groups")
    page.locator(".ml-groups-look").click()
    row = page.locator(f'.ml-groups-rows tr[data-key="{late}"]')
    expect(row).to_contain_text("would move")
    expect(page.locator(f'.ml-groups-rows tr[data-key="{world.group}"]')).to_contain_text("in_step")
    row.locator(".ml-grid-open").click()
    expect(page.locator(f'.ml-groups-rows tr[data-key="{late}/0"]')).to_contain_text("read up to 3")
    row.locator("input[type=checkbox]").check()
    page.locator(".ml-groups-plan-chosen").click()
    plan = page.locator(".ml-groups-plan")
    expect(plan).to_contain_text(late)
    expect(plan).not_to_contain_text(world.group)
    expect(page.locator(".ml-groups-apply")).to_be_disabled()
    page.locator(".ml-groups-confirm input").fill(FLOW)
    expect(page.locator(".ml-groups-apply")).to_be_enabled()
    page.locator(".ml-groups-apply").click()
    expect(page.locator(".ml-groups-applied")).to_contain_text("1 position moved")
    expect(row).to_contain_text("in_step")
    expect(page.locator(".ml-errors")).to_be_hidden()


def test_every_tab_fits_a_narrow_dark_page_and_a_screen_reader_finds_nothing_serious(world: World) -> None:
    page = world.page
    page.set_viewport_size({"width": 800, "height": 900})
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.get_by_role("menu").get_by_text("Theme", exact=True).hover()
    page.get_by_role("menu").get_by_text("JupyterLab Dark", exact=True).click()
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    faults: dict[str, object] = {}
    for name in page.locator(".ml-tabs > .lm-TabBar [role=tab]").all_inner_texts():
        world.tab(name)
        expect(page.locator(".ml-errors")).to_be_hidden()
        screenshot(page, f"console-{name.lower().replace(' ', '-')}")
        if found := serious(page, ".ml-console"):
            faults[name] = found
        if cut := page.evaluate(CUT):
            faults[f"{name}, width"] = cut
    assert not faults, json.dumps(faults, indent=1)
    assert not world.dialogs, "record content is text, and no script"


@pytest.mark.law("G")
def test_law_g_flows_are_set_up_one_after_another_in_their_file_then_run_and_stopped(
    world: World, lab: Lab, east: KafkaCluster, central: KafkaCluster
) -> None:
    page = world.page
    page.set_viewport_size({"width": 1280, "height": 900})
    world.tab("Set up")
    rows, said = page.locator(".ml-flow-row"), page.locator(".ml-flow-taken")

    def step(name: str) -> None:
        page.locator(".ml-steps > .lm-TabBar").get_by_role("tab", name=name, exact=True).click()

    def fill_flow(topics: str) -> None:
        page.locator(".ml-flow-source select").select_option("east")
        page.locator(".ml-flow-target select").select_option("central")
        page.locator(".ml-flow-topics input").fill(topics)

    step("1 Clusters")
    page.locator(".ml-cluster-alias input").fill("spare")
    page.locator(".ml-cluster-servers input").fill(east.bootstrap_servers)
    page.locator(".ml-cluster-test").click()
    expect(page.locator(".ml-cluster-result")).to_contain_text("answers")
    page.locator(".ml-cluster-add").click()
    expect(page.locator(".ml-cluster-list")).to_contain_text("spare")
    page.locator(".ml-wizard-next").click()
    step("2 Flow")
    page.locator(".ml-flow-discard").click()
    expect(page.locator(".ml-flow-topics input")).to_have_value("")
    expect(rows).to_have_count(1)
    fill_flow(rf"{world.prefix}\.many\.00\d")
    expect(said).to_contain_text("is a flow already")
    expect(page.locator(".ml-flow-keep")).to_be_disabled()
    page.locator(".ml-flow-use-free").click()
    expect(page.locator(".ml-flow-name input")).to_have_value(f"{FLOW}-2")
    expect(said).to_have_text("")
    page.locator(".ml-flow-look").click()
    expect(page.locator(".ml-flow-preview")).to_contain_text("10 mirrored")
    pattern, preview = page.locator(".ml-flow-topics").bounding_box(), page.locator(".ml-flow-preview").bounding_box()
    assert pattern
    assert preview
    assert pattern["x"] + pattern["width"] <= preview["x"], "the preview is beside the pattern"
    assert abs(pattern["y"] - preview["y"]) < 50
    page.locator(".ml-flow-topics input").fill(rf"{world.prefix}\.many\..*")
    expect(page.locator(".ml-flow-preview")).to_contain_text(f"and {MANY - 20} more rows")
    page.locator(".ml-flow-topics input").fill(rf"{world.prefix}\.many\.00[0-4]")
    page.locator(".ml-flow-new").click()
    expect(rows).to_have_count(2)
    fill_flow(rf"{world.prefix}\.many\.long.*")
    name = page.locator(".ml-flow-name input")
    name.fill("lon")
    # Kafka would not take it with a prefix.
    page.locator(".ml-flow-policy select").select_option("identity: the same name")
    # The form moves with it, the preview last; a click before that goes to where the button was.
    expect(page.locator(".ml-flow-separator")).to_be_hidden()
    expect(page.locator(".ml-flow-preview")).to_contain_text("1 mirrored")
    # A click acts on all that was typed before it, also into a slow kernel.
    with lab.kernel_suspended():
        name.press("End")
        name.press_sequentially("g")
        page.locator(".ml-flow-keep").click()
    expect(rows).to_have_count(3)
    expect(page.locator(".ml-flow-added")).to_contain_text("in the draft")
    expect(page.locator(".ml-errors")).to_be_hidden()
    second = rows.filter(has_text=f"{FLOW}-2")
    second.locator(".ml-flow-edit").click()
    expect(page.locator(".ml-flow-form")).to_contain_text(f"{FLOW}-2")
    page.locator(".ml-flow-topics input").fill(rf"{world.prefix}\.many\.00[0-2]")

    before, there = world.conf.read_text(), topics_of(central)
    step("3 Review and apply")
    expect(page.locator(".ml-lake-where")).to_contain_text(str(world.conf.parent / "lake"))
    page.locator(".ml-review").click()
    plan = page.locator(".ml-plan")
    expect(plan).to_contain_text("4 topics, 3 settings, 2 ledgers")
    assert plan.evaluate("one => one.scrollWidth <= one.clientWidth"), "a name of 249 characters tears no table"
    expect(page.locator(".ml-review-state")).to_contain_text("2 flows")
    screenshot(page, "console-set-up-plan", at=plan)
    expect(page.locator(".ml-apply")).to_be_disabled()
    assert topics_of(central) == there, "law G: looking changes nothing"
    page.locator(".ml-confirm input").fill("2 flows")
    page.locator(".ml-apply").click()
    expect(page.locator(".ml-applied")).to_contain_text("applied")
    made = {name for name in topics_of(central) - there if world.prefix in name}
    assert len(made) == 4
    assert made > {f"east.{world.prefix}.many.00{n}" for n in range(3)}
    expect(page.locator(".ml-run-elsewhere")).to_contain_text(f"mirrorlake run --conf {world.conf}")
    expect(page.locator(".ml-run-elsewhere")).to_contain_text("not saved yet")
    assert world.conf.read_text() == before
    page.locator(".ml-run-save").click()
    expect(page.locator(".ml-run-elsewhere")).not_to_contain_text("not saved yet")
    assert [flow.name for flow in load(world.conf).flows] == [FLOW, f"{FLOW}-2", "long"]

    page.locator(".ml-run").click()
    progress = page.locator(".ml-run-progress")
    expect(progress).to_contain_text("records in", timeout=WAIT_MS)
    expect(progress.locator("tr", has_text="long")).to_contain_text("OK", timeout=WAIT_MS)
    step("4 Run")
    page.locator(".ml-run-stop").click()
    expect(page.locator(".ml-run-said")).to_contain_text("ended", timeout=WAIT_MS)
    expect(page.locator(".ml-errors")).to_be_hidden()


def test_a_console_says_when_its_kernel_is_busy_and_rests_when_it_was_restarted(world: World, lab: Lab) -> None:
    page = world.page
    said, tabs = page.locator(".ml-kernel"), page.locator(".ml-console > .ml-tabs")
    expect(said).to_be_hidden()
    # A cell alone does not keep it from answering: JupyterLab asks beside it.
    with lab.kernel_suspended():
        expect(said).to_contain_text("The kernel is busy")
        assert not tabs.evaluate("one => one.inert"), "what is clicked now is done later"
    expect(said).to_be_hidden()
    lab.restart_kernel()
    expect(said).to_contain_text("run the cell again")
    assert tabs.evaluate("one => one.inert")
    screenshot(page, "console-restarted", at=said)
