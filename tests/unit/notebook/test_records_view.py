"""The record browser and the group explorer without a browser: what they ask, and what they show of what others wrote."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.group_overview import (
    ABSENT,
    GroupMember,
    GroupOnCluster,
    GroupOverview,
    GroupOverviewPart,
    GroupOverviewRow,
)
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.offset_map import Exact
from mirrorlake.notebook.console.record_detail import value_html
from mirrorlake.notebook.console.record_side import row_of
from mirrorlake.notebook.console.window import Console
from mirrorlake.records.page import Page
from mirrorlake.records.record import LandedIn, Missing, Outcome, Passport
from tests.builders import browsed, mirror_config, page_of, passport_of
from tests.unit.notebook.kit import EVIL
from tests.unit.values import group_position

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
FLOW = "east->west"


class Library:
    """Stands for a mirror whose records are known: offsets 3 and 4 of `orders`, republished as 13 and 14."""

    def __init__(self, mirror: Mirror) -> None:
        self.flows = mirror.flows
        self.config = mirror.config
        self.asked: list[Any] = []
        self.fails = ""
        self.note = ""
        self.applied: GroupPlan | None = None

    def browse(self, cluster: str, topic: str, partition: int | None, *, relay: bool, **seek: Any) -> Page:
        self.asked.append((cluster, topic, partition, relay, seek))
        side = "relay" if relay else "target" if cluster == "west" else "source"
        if side == self.fails:
            raise ClusterError("cluster west does not answer", remedy="wait")
        first = 13 if cluster == "west" else 3
        evil, place = EVIL.encode(), {"topic": topic, "partition": partition or 0}
        odd = {"key": evil, "value": evil, "headers": ((EVIL, evil), (EVIL, None)), "generation": 1 if relay else None}
        records = [browsed(offset, **place, **odd) for offset in (first, first + 1)]
        missing = (Missing(first=first + 2, last=first + 2, kind="absent"),)
        page = page_of(records, **place, start=first, end=first + 3, first=0, missing=missing, cluster=cluster)
        return replace(page, note=self.note, wanted="where" if self.note else "")

    def passport(self, cluster: str, topic: str, partition: int, offset: int, *, generation: int | None) -> Passport:
        assert generation in (None, 1)
        self.asked.append((cluster, topic, partition, offset))
        upstream = offset if cluster == "east" else offset - 10
        place = TopicPartition("east.orders", 0)
        sent = {"place": place, "offset": upstream + 10, "rule": EVIL}
        outcome = Outcome(flow=FLOW, target="west", status="republished", words=EVIL, **sent)
        landed = LandedIn(file=EVIL, landed_at_ms=0)
        return passport_of(upstream, outcome, words=EVIL, landed=landed)

    def translate(
        self,
        flow: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        generation: int | None = None,
        reverse: bool = False,
    ) -> Exact:
        assert flow == FLOW
        assert generation in (None, 1)
        assert topic == ("east.orders" if reverse else "orders")
        # The flow gathers: what came from partition 2 stands in partition 1.
        if reverse:
            return Exact(partition=SourcePartition("orders", 1, 2 if partition else 0), offset=offset - 10)
        return Exact(partition=TopicPartition("east.orders", partition), offset=offset + 10)

    def topics(self, cluster: str) -> list[Any]:
        assert cluster == "east"
        return [SimpleNamespace(topic="orders", partitions=3), SimpleNamespace(topic="other", partitions=1)]

    def group_standing(self, flow: str) -> GroupOverview:
        assert flow == STANDING.flow
        return STANDING

    def plan_groups(self, flow: str, *, groups: list[str]) -> GroupPlan:
        self.asked.append(("plan", groups))
        return GroupPlan(flow, tuple(group_position(group, "move", reason=EVIL) for group in groups))

    def apply_groups(self, flow: str, *, plan: GroupPlan) -> GroupPlan:
        assert flow == plan.flow
        self.applied = plan
        return plan.holding("search", "it has new members on the target since the plan was made")


def group(name: str, action: Any, *, members: int = 0) -> GroupOverviewRow:
    there = GroupOnCluster(
        state="stable" if members else "empty",
        members=tuple(GroupMember(client_id=EVIL, host="/10.0.0.7", partitions=2) for _ in range(members)),
        lag=15,
    )
    position = group_position(name, action, reason=f"because {name}")
    part = GroupOverviewPart(position=position, source_lag=15, target_lag=None)
    return GroupOverviewRow(group=name, source=there, target=GroupOnCluster(state=ABSENT), parts=(part,))


STANDING = GroupOverview(
    flow=FLOW, source="east", target="west", groups=(group("search", "hold", members=1), group("billing", "move"))
)


@pytest.fixture
def console() -> Iterator[Console]:
    with Console(Mirror(mirror_config()), now=lambda: NOW) as made:
        yield made


@pytest.fixture
def library(console: Console) -> Library:
    made = Library(cast("Mirror", console.mirror))
    console.session.mirror = cast("Mirror", made)
    return made


@pytest.fixture
def view(console: Console, library: Library) -> Any:
    """The tab of records, of the topic `orders`."""
    console.records.topic.value = "orders"
    return console.records


def keys(view: Any, side: str) -> list[str]:
    return [row["key"] for row in view.sides[side].grid.rows]


def test_each_side_is_asked_and_shown_by_itself_the_newest_on_top(
    view: Any, console: Console, library: Library
) -> None:
    view.topic.value = ""
    view.look.click()
    assert "no topic is named" in console.session.errors.errors[0]
    console.session.errors.clear()
    view.topic.value = "orders"
    library.fails = "target"
    view.key.value, view.contains.value, view.where.value = "k", "x", "$.a = 1"
    view.look.click()
    assert console.session.errors.errors == [], "a side that fails says so itself"
    wanted = {"count": 20, "key": "k", "contains": "x", "where": "$.a = 1"}
    assert sorted(library.asked, key=str) == [
        ("east", "orders", None, False, wanted),
        ("east", "orders", None, True, wanted),
        ("west", "east.orders", None, False, wanted),
    ]
    assert keys(view, "source") == keys(view, "relay") == ["0@4", "0@3"]
    assert keys(view, "target") == []
    assert "does not answer" in view.sides["target"].head.value
    assert "aborted" in view.sides["source"].notes.value, "law E in words"


def test_an_answer_about_an_earlier_choice_is_dropped(
    view: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.look.click()
    answer, goes_on = library.passport, threading.Event()
    answers: dict[int, Passport] = {}

    def passport(cluster: str, topic: str, partition: int, offset: int, **more: Any) -> Passport:
        if offset == 3:
            goes_on.wait(60)
        answers[offset] = answer(cluster, topic, partition, offset, **more)
        return answers[offset]

    monkeypatch.setattr(library, "passport", passport)

    async def choose() -> None:
        for key in ("0@3", "0@4"):
            view.sides["source"].grid.selected = [key]
            await asyncio.sleep(0.05)
        goes_on.set()
        while len(answers) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)

    asyncio.run(choose())
    assert view.found is answers[4]


@pytest.mark.parametrize("side", ["source", "target"])
def test_an_offset_on_one_side_finds_its_place_on_the_others(
    view: Any, console: Console, library: Library, side: str
) -> None:
    asyncio.run(view.on_topics())
    assert view.topic.options == ("orders",), "the topics that the flow carries"
    assert view.partition.options == ("all", "0", "1", "2")
    view.seek.value, view.anchor.value, view.offset.value = "offset", side, 13 if side == "target" else 3
    view.look.click()
    assert "an offset is of one" in console.session.errors.errors[0]
    console.session.errors.clear()
    view.partition.value = "1"
    view.look.click()
    assert console.session.errors.errors == []
    pages = [one for one in library.asked if len(one) == 5]
    asked = {(cluster, partition, relay, seek["offset"]) for cluster, _, partition, relay, seek in pages}
    upstream = 2 if side == "target" else 1
    assert asked == {("west", 1, False, 13), ("east", upstream, False, 3), ("east", upstream, True, 3)}


def test_a_search_goes_on_where_it_stopped(view: Any, library: Library) -> None:
    assert view.go_on.layout.display == "none"
    library.note = "looked through 10 000 records back to offset 3; there are more to look through"
    view.look.click()
    assert "there are more" in view.sides["source"].notes.value
    assert view.go_on.layout.display is None
    pages = {name: side.page for name, side in view.sides.items()}
    library.asked.clear()
    library.note = ""
    view.go_on.click()
    assert [one[-1]["before"] for one in library.asked] == [pages["source"], pages["relay"], pages["target"]]
    assert view.go_on.layout.display == "none"


def test_odd_records_are_shown_as_they_are() -> None:
    assert row_of(browsed(1, value=None)).cells["value"] == "‹null›"
    assert row_of(browsed(1, value=b"")).cells["value"] == "‹empty›"
    assert len(row_of(browsed(1, value=b"x" * 2**20)).cells["value"]) < 300, "a cell is no place for a megabyte"
    assert "\u202e" not in row_of(browsed(1, value="\u202eevil".encode())).cells["value"]
    assert "\x1b" not in value_html(b"a\x1b[31m", "Text")
    assert "‹U+202E›" in value_html("\u202eevil".encode(), "Text", whole=True)
    assert "&lt;script" in value_html(EVIL.encode(), "Text")
    assert "ff 00" in value_html(b"\xff\x00", "Hex")
    assert "  &quot;a&quot;: 1.10" in value_html(b'{"a":1.10}', "JSON"), "a number as it was written"
    cut = value_html(b"x" * 2**20, "Text")
    assert "the first 4.1 kB of 1.0 MB" in cut
    assert len(cut) < 6000
    assert value_html(b"x" * 2**20, "Text", whole=True).count("x") >= 2**20


def test_the_whole_of_a_large_value_is_shown_and_saved_when_it_is_asked_for(console: Console) -> None:
    detail = console.records.detail
    detail.show(browsed(7, value=b'{"a": "' + b"x" * 5000 + b'"}'), "on east")
    assert (detail.form.value, detail.link.value) == ("JSON", "")
    assert "the first" in detail.value.value
    detail.all.click()
    assert "the first" not in detail.value.value
    assert 'download="orders-0@7.bin"' in detail.link.value
    detail.show(browsed(8, value=b"\xff"), "on east")
    assert (detail.form.value, detail.link.value) == ("Hex", "")


@pytest.mark.law("G")
def test_law_g_chosen_groups_are_moved_as_their_plan_was_shown(console: Console, library: Library) -> None:
    view = console.groups
    view.look.click()
    assert console.session.errors.errors == []
    assert [row["key"] for row in view.grid.rows] == ["search", "billing"]
    [search, billing] = view.grid.rows
    assert search["cells"]["source"]["text"] == "stable, 1 member"
    assert EVIL in search["cells"]["source"]["title"], "the browser is given text, never markup"
    assert (billing["cells"]["source_lag"], billing["cells"]["target"]["text"]) == (15, "absent")
    goes_on = billing["parts"][0]["cells"]["goes_on"]
    assert (goes_on["text"], goes_on["link"]) == ("east.billing-0@12300", "topic/west/east.billing")
    assert search["cells"]["why"] == "because search"

    assert view.choose.disabled
    view.grid.selected = ["billing", "search"]
    view.choose.click()
    assert library.asked == [("plan", ["billing", "search"])]
    assert "12300" in view.shown.value
    assert view.apply.disabled
    view.apply.click()
    assert library.applied is None
    view.confirm.value = FLOW
    assert not view.apply.disabled
    view.grid.selected = ["billing"]
    assert view.plan is None, "the plan is not of what is chosen any more"
    assert view.confirm.value == ""
    view.grid.selected = ["billing", "search"]
    view.choose.click()
    shown = view.plan
    view.confirm.value = FLOW
    view.apply.click()
    assert console.session.errors.errors == []
    assert library.applied is shown
    assert "1 position moved" in view.outcome.value
    assert "has new members" in view.outcome.value
    assert "<script" not in view.outcome.value + view.shown.value
    view.grid.selected = []
    with pytest.raises(UsageError, match="no group is chosen"):
        asyncio.run(view.on_plan())
