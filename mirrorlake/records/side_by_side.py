"""Read the same records on every side of a flow: source, relay, target."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Protocol

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import Exact
from mirrorlake.offsets import translate_back, translate_table
from mirrorlake.records.page import Page, SideBySide

Anchor = Literal["source", "relay", "target"]


class Browser(Protocol):
    """Reads a page of a cluster or of its relay, as `Mirror` does."""

    def browse(
        self,
        cluster: str,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        at: datetime | None = None,
        relay: bool = False,
        count: int = 20,
    ) -> Page:
        """Return a page (see `Mirror.browse`)."""


def read_side_by_side(
    lake: Lake,
    flow: FlowConfig,
    where: TopicPartition,
    *,
    browser: Browser,
    anchor: Anchor,
    offset: int | None,
    at: datetime | None,
    count: int,
) -> SideBySide:
    """Read a page on one side and return the same records on all sides (see `Mirror.side_by_side`).

    With `anchor` "target", the topic is the source's and the partition the target's.

    Raises:
        MirrorlakeError: the anchor's side cannot be read.
    """
    notes: list[str] = []
    pages: dict[str, Page] = {}
    remote = flow.remote_topic(where.topic)
    if anchor == "target":
        pages["target"] = browser.browse(flow.target, remote, where.partition, offset=offset, at=at, count=count)
        source = _upstream(lake, flow, pages["target"])
        if source is None:
            return SideBySide(
                flow=flow.name, target=pages["target"], notes=("none of these records came by this flow",)
            )
        upstream, start = source
    else:
        page = browser.browse(
            flow.source, where.topic, where.partition, offset=offset, at=at, count=count, relay=anchor == "relay"
        )
        pages[anchor] = page
        # The newest records of a lagging relay differ from its source's: all sides begin at one offset.
        start = page.records[0].offset if page.records else page.start
        upstream = SourcePartition(where.topic, page.generation or 0, where.partition)

    def attempt(side: str, alias: str, topic: str, partition: int, first: int) -> None:
        if side not in pages:
            try:
                pages[side] = browser.browse(alias, topic, partition, offset=first, count=count, relay=side == "relay")
            except MirrorlakeError as error:
                notes.append(f"{side}: {error.cause}")

    attempt("source", flow.source, upstream.topic, upstream.partition, start)
    attempt("relay", flow.source, upstream.topic, upstream.partition, start)
    if "target" not in pages:
        found = _downstream(lake, flow, pages.get("relay"))
        if found is None:
            notes.append("target: none of these records stands there yet; the passport of a record says why")
        else:
            attempt("target", flow.target, found[0].topic, found[0].partition, found[1])
    return SideBySide(flow=flow.name, notes=tuple(notes), **pages)


def _upstream(lake: Lake, flow: FlowConfig, page: Page) -> tuple[SourcePartition, int] | None:
    for record in page.records:
        found = translate_back(lake, flow, topic=page.topic, partition=record.partition, offset=record.offset)
        if isinstance(found, Exact) and isinstance(found.partition, SourcePartition):
            return found.partition, found.offset
    return None


def _downstream(lake: Lake, flow: FlowConfig, page: Page | None) -> tuple[TopicPartition, int] | None:
    """Return the target position of the first republished record of a relay page, or None."""
    from pyspark.sql import functions as F

    if page is None or not page.records:
        return None
    asked = lake.spark.createDataFrame(
        [(page.topic, page.generation, page.partition, record.offset) for record in page.records],
        "topic string, generation int, partition int, offset bigint",
    )
    rows = translate_table(lake, flow, asked).where(F.col("status") == "exact").orderBy("offset").limit(1).collect()
    for row in rows:
        return TopicPartition(row.target_topic, row.target_partition), int(row.downstream_offset)
    return None
