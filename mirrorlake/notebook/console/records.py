"""The record browser: source, relay and target side by side, each read by itself; and a record with its passport.

Anyone with write access to a topic controls its records: lists show them as cell text, never as markup; everything else goes
through `mirrorlake.render`, which escapes it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import ipywidgets as widgets

from mirrorlake.config import EXAMPLES, when
from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import TopicPartition
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.counterparts import (
    find_counterparts,
    find_flow,
    find_on_source,
    find_on_target,
    named_on,
)
from mirrorlake.notebook.console.error_panel import error_text
from mirrorlake.notebook.console.live_tail import LiveTail
from mirrorlake.notebook.console.record_detail import RecordDetail
from mirrorlake.notebook.console.record_side import RecordSide
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import FlowPanel
from mirrorlake.records import BrowsedRecord, Page, Passport
from mirrorlake.render import badge, breakable, format_count, format_time

SIDES = ("source", "relay", "target")
_SEEKS = (("the newest", "newest"), ("from an offset", "offset"), ("from a time", "time"))
_ALL = "all"


class RecordsView(FlowPanel):
    def __init__(self, session: Session) -> None:
        super().__init__(session, "records")
        self.found: Passport | None = None
        # Cluster, topic, partition and offset of the record whose passport is shown.
        self.chosen: tuple[str, str, int, int] | None = None
        self._partitions: dict[str, int] = {}
        self._following: list[asyncio.Task[None] | None] = []
        self.topic = controls.combobox("records-topic", "Source topic", hint="choose, or type a part of its name")
        self.topics_said = controls.html("records-topics")
        self.partition = controls.dropdown("records-partition", "Partition", [_ALL])
        self.seek = controls.dropdown("records-seek", "Show", _SEEKS, "newest")
        self.anchor = controls.dropdown("records-side", "Offset or tail on", SIDES, SIDES[0])
        self.offset = controls.integer("records-offset", "Offset")
        self.time = controls.text("records-time", "Time (UTC)", hint="2026-11-22 03:30, 03:30, -2h", wide=False)
        self.time_said = controls.html("records-time-read")
        self.count = controls.integer("records-count", "Records", value=20, least=1, most=1000)
        self.key = controls.text("records-key", "Key is", hint="the whole key", wide=False, live=False)
        self.contains = controls.text(
            "records-contains", "Value contains", hint="a text, as it is written", wide=False, live=False
        )
        self.where = controls.text("records-where", "Where", hint="$.customer.id = 7", live=False)
        self.look = self.button("records-look", "Read records", self.on_look, main=True)
        self.older = self.button("records-older", "◀ Older", partial(self.on_turn, forwards=False))
        self.newer = self.button("records-newer", "Newer ▶", partial(self.on_turn, forwards=True))
        tip = "Look through the records that come next"
        self.go_on = self.button("records-go-on", "Go on looking", self.on_go_on, tip=tip)
        tip = "Show records as they come; joins no group"
        self.tail = self.button("records-tail", "Live tail", self.on_tail, tip=tip)
        self.stop_tail = self.button("records-tail-stop", "Stop", self.on_stop, tip="Stop the live tail")
        self.sides = {side: RecordSide(session, side, self._choose) for side in SIDES}
        self.detail = RecordDetail(session)
        self.passport = controls.html("passport")
        self.live = LiveTail(session, self._came)
        beside = widgets.HBox(
            [side.widget for side in self.sides.values()], layout=widgets.Layout(flex_flow="row wrap")
        )
        self.widget = controls.column(
            controls.row(self.flow, self.topic, self.partition),
            self.topics_said,
            controls.row(self.seek, self.anchor, self.offset, self.time, self.time_said, self.count),
            controls.row(self.key, self.contains, self.where),
            controls.buttons(self.look, self.older, self.newer, self.go_on, self.tail, self.stop_tail),
            beside,
            self.detail.widget,
            self.passport,
        )
        self.on_change(self._show_seek, self.seek)
        self.on_change(self._read_time, self.time)
        self.on_change(self._offer_partitions, self.topic)
        self._show_seek()
        self.update_controls()
        self.offer()
        self.on_change(self.start, self.flow)

    def start(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._session.mirror is not None and self.flow.value:
            self._runner.start(self.on_topics())

    async def on_topics(self) -> None:
        """List the flow's topics with their partitions; the form works without them, too."""
        name = self.flow.value
        mirror = self._session.mirror_of(name)
        self.topics_said.value = "listing the flow's topics …"
        try:
            found = await self._runner.ask(mirror.topics, mirror.config.flow(name).source)
        except Exception as error:  # shown beside the field: a person can type a topic's name
            self.topics_said.value = f"the topics cannot be listed: {breakable(error_text(error).splitlines()[0])}"
            return
        if name != self.flow.value:
            return
        flow = mirror.config.flow(name)
        self._partitions = {one.topic: one.partitions for one in found if flow.carries(one.topic)}
        self.topic.options = sorted(self._partitions)
        self.topics_said.value = f"{format_count(len(self._partitions))} topics of {breakable(name)}"
        if not self.topic.value and len(self._partitions) == 1:
            self.topic.value = next(iter(self._partitions))
        self._offer_partitions()

    async def on_look(self) -> None:
        self.live.stop()
        self._forget()
        if self.seek.value != "offset":
            at = {"at": self._time()} if self.seek.value == "time" else {}
            await self._each(dict.fromkeys(SIDES, at))
            return
        await self._from_offset(self.anchor.value, self.offset.value)

    async def open_record(self, cluster: str, topic: str, partition: int, offset: int) -> None:
        """Show a record of a cluster among its neighbours on all sides, and its passport."""
        mirror = self._session.mirror_of(self.flow.value)
        side, flow, source_topic = await self._runner.ask(find_flow, mirror, cluster, topic, partition, offset)
        self.flow.value, self.topic.value = flow, source_topic
        known = max(self._partitions.get(source_topic, 0), partition + 1)
        controls.refill(self.partition, [_ALL, *map(str, range(known))], str(partition))
        self.seek.value, self.anchor.value, self.offset.value = "offset", side, offset
        await self.on_look()
        shown = next((one for one in (side, "relay") if self._shows(one, cluster, topic, partition, offset)), None)
        if shown is not None:
            self.sides[shown].grid.selected = [f"{partition}@{offset}"]
        else:
            await self._show_passport(cluster, (topic, partition, offset), None)

    def _shows(self, side: str, cluster: str, topic: str, partition: int, offset: int) -> bool:
        record = self.sides[side].record(partition, offset)
        return record is not None and record.topic == topic and self.sides[side].cluster == cluster

    async def on_turn(self, *, forwards: bool) -> None:
        turned: dict[str, dict[str, Any]] = {
            side: {"after" if forwards else "before": one.page} for side, one in self.sides.items() if one.page
        }
        if not turned:
            raise UsageError("nothing is shown yet", remedy="press Read records first")
        self._forget()
        await self._each(turned)

    async def on_go_on(self) -> None:
        self._forget()
        backward = self.seek.value == "newest"
        wanted: dict[str, dict[str, Any]] = {}
        for side, one in self.sides.items():
            if one.page is not None and _has_more(one.page, backward=backward):
                wanted[side] = {"before" if backward else "after": one.page}
                if self.seek.value == "time" and not one.page.records:
                    wanted[side]["at"] = self._time()
        await self._each(wanted)

    async def on_tail(self) -> None:
        mirror, flow, topic = self._asked()
        side = self.anchor.value
        alias, name = named_on(flow, side, topic)
        partition = self._partition
        filters = self._filters()
        self._forget()
        self.sides[side].clear(f"waiting for records on {alias} …")

        def begin(stop: threading.Event) -> Iterator[BrowsedRecord]:
            return mirror.tail(alias, name, partition, relay=side == "relay", stop=stop, **filters)

        self._followed = (side, alias)
        self.live.start(begin, most=self.count.value)

    async def on_stop(self) -> None:
        self.live.stop()

    def _came(self, records: Sequence[BrowsedRecord], came: int, ended: str) -> None:
        side, alias = self._followed
        kept = f", the newest {format_count(len(records))} are shown" if came > len(records) else ""
        problem = ended not in ("", "stopped")
        said = f"{alias}: {format_count(came)} came{kept}" + (" · live" if not ended else f" · {ended}")
        if problem and not records:
            self.sides[side].fail(ended)
        else:
            self.sides[side].follow(alias, records, said)
        self.update_controls()

    # -- what is asked --------------------------------------------------------------------------------------------

    def _asked(self) -> tuple[Mirror, FlowConfig, str]:
        mirror = self._session.mirror_of(self.flow.value)
        topic = self.topic.value.strip()
        if not topic:
            raise UsageError("no topic is named", remedy="choose a source topic of the flow")
        return mirror, mirror.config.flow(self.flow.value), topic

    def _filters(self) -> dict[str, Any]:
        return {"key": self.key.value or None, "contains": self.contains.value or None, "where": self.where.value}

    async def _each(self, seeks: dict[str, dict[str, Any]], partitions: dict[str, int] | None = None) -> None:
        mirror, flow, topic = self._asked()
        filters, most = self._filters(), self.count.value

        async def read(side: str, seek: dict[str, Any]) -> None:
            alias, name = named_on(flow, side, topic)
            # If the flow chooses partitions itself, a source partition is not one of the target.
            chosen = None if side == "target" and flow.placement.kind != "keep" else self._partition
            partition = (partitions or {}).get(side, chosen)
            await self.sides[side].read(
                mirror.browse, alias, name, partition, relay=side == "relay", count=most, **seek, **filters
            )

        await asyncio.gather(*(read(side, seek) for side, seek in seeks.items()))

    async def _from_offset(self, side: str, offset: int) -> None:
        """Read one side from an offset, and the others from its exact counterpart, or the first after it."""
        mirror, flow, topic = self._asked()
        partition = self._partition
        if partition is None:
            known = self._partitions.get(topic, 1)
            if known > 1:
                raise UsageError(
                    f"{topic} has {known} partitions, and an offset is of one", remedy="choose a partition"
                )
            partition = 0
        if side != "target":
            places = {one: {"offset": offset} for one in ("source", "relay")}
            target = self._to_target(mirror, flow, TopicPartition(topic, partition), offset)
            await asyncio.gather(self._each(places, dict.fromkeys(places, partition)), target)
            return
        await self._each({"target": {"offset": offset}}, {"target": partition})
        page = self.sides["target"].page
        await self._to_source(mirror, flow, page)

    async def _to_target(self, mirror: Mirror, flow: FlowConfig, place: TopicPartition, offset: int) -> None:
        side = self.sides["target"]
        side.clear("looking for the counterpart …")
        try:
            there = await self._runner.ask(find_on_target, mirror, flow.name, place, offset)
        except Exception as error:  # shown on its side
            side.fail(error_text(error))
            return
        if isinstance(there, str):
            side.clear(there)
            return
        partition, counterpart = there
        await self._each({"target": {"offset": counterpart}}, {"target": partition})

    async def _to_source(self, mirror: Mirror, flow: FlowConfig, page: Page | None) -> None:
        """Read source and relay from the counterpart of the first target record that the flow wrote."""
        found = await self._runner.ask(find_on_source, mirror, flow.name, page.records if page else ())
        if found is not None:
            partition, offset = found
            places = {one: {"offset": offset} for one in ("source", "relay")}
            await self._each(places, dict.fromkeys(places, partition))
            return
        for one in ("source", "relay"):
            self.sides[one].clear("none of the target's records came by this flow")

    # -- what is chosen -------------------------------------------------------------------------------------------

    def _choose(self, side: RecordSide, record: BrowsedRecord) -> None:
        self._stop_following()
        for other in self.sides.values():
            if other is not side:
                other.unchoose()
            other.mark({(record.partition, record.offset): "chosen"} if other is side else {})
        where = f"landed from {side.cluster}" if side.name == "relay" else f"on {side.cluster}"
        self.detail.show(record, where)
        # Each is shown as soon as it is known.
        place = (record.topic, record.partition, record.offset)
        self._following = [
            self._runner.start(self._show_passport(side.cluster, place, record.generation)),
            self._runner.start(self._show_counterparts(side, record)),
        ]

    def _stop_following(self) -> None:
        for task in self._following:
            if task is not None:
                task.cancel()
        self._following = []

    async def _show_passport(self, cluster: str, place: tuple[str, int, int], generation: int | None) -> None:
        mirror = self._session.mirror_of(self.flow.value)
        self.chosen = (cluster, *place)
        topic, partition, offset = place
        self.passport.value = f"Following {breakable(f'{topic}-{partition}@{offset}')} …"
        try:
            found = await self._runner.ask(mirror.passport, cluster, *place, generation=generation)
        except Exception as error:  # of this record only: the lists stay
            self.passport.value = f"{badge('failed').html()} {breakable(error_text(error))}"
            return
        self.found = found
        self.passport.value = found.to_html(rows=None)

    async def _show_counterparts(self, side: RecordSide, record: BrowsedRecord) -> None:
        """Mark the record on the other sides by the exact offset map; a side without it reads its offset."""
        mirror = self._session.mirror_of(self.flow.value)
        flow = mirror.config.flow(self.flow.value)
        places = await self._runner.ask(find_counterparts, mirror, flow.name, side.name, record)
        for name, (topic, partition, offset) in places.items():
            other = self.sides[name]
            marks = {(partition, offset): "same record"}
            if other is not side and not other.mark(marks) and not self.live.is_running:
                alias = flow.target if name == "target" else flow.source
                most, relay = self.count.value, name == "relay"
                await other.read(mirror.browse, alias, topic, partition, offset=offset, count=most, relay=relay)
                other.mark(marks)

    def _forget(self) -> None:
        self._stop_following()
        self.found, self.chosen, self.passport.value = None, None, ""
        self.detail.clear()
        for side in self.sides.values():
            side.unchoose()
            side.mark({})

    # -- the form -------------------------------------------------------------------------------------------------

    @property
    def _partition(self) -> int | None:
        chosen = self.partition.value
        return None if chosen in (None, _ALL) else int(chosen)

    def _offer_partitions(self) -> None:
        known = self._partitions.get(self.topic.value.strip(), 0)
        # An unlisted topic may have any number of partitions; most have these.
        numbers = range(known or 1)
        controls.refill(self.partition, [_ALL, *map(str, numbers)])

    def _show_seek(self) -> None:
        self.offset.layout.display = None if self.seek.value == "offset" else "none"
        for field in (self.time, self.time_said):
            field.layout.display = None if self.seek.value == "time" else "none"

    def _read_time(self) -> None:
        try:
            read = when(self.time.value, now=self._session.now()) if self.time.value.strip() else None
        except MirrorlakeError:
            # The person is still typing.
            read = None
        self.time_said.value = "" if read is None else f"= {breakable(format_time(read))}"

    def _time(self) -> Any:
        if not self.time.value.strip():
            raise UsageError("no time is given", remedy=f"write {EXAMPLES}")
        return when(self.time.value, now=self._session.now())

    def update_controls(self) -> None:
        backward = self.seek.value == "newest"
        more = [_has_more(one.page, backward=backward) for one in self.sides.values() if one.page is not None]
        self.go_on.layout.display = None if any(more) else "none"
        runs = self.live.is_running
        self.tail.allow("it runs: press Stop first" if runs else "")
        self.stop_tail.allow("" if runs else "no live tail runs")


def _has_more(page: Page, *, backward: bool) -> bool:
    return bool(page.note) and not (page.is_first if backward else page.is_last)
