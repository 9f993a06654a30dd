"""Compute start offsets and refuse unsafe starts.

Positions come from the relay and its commits, and for a query from its checkpoint location; never from a window of time. A
clock that is set back by hours changes none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from mirrorlake.errors import CheckpointLost, ClusterIdMismatch, SourceGap
from mirrorlake.lake import (
    CheckpointLocation,
    FencedRelayWriter,
    KnownTopic,
    Lake,
    LandedPositions,
    LandingCommit,
    SourceTopics,
    accounted_until,
    kafka_positions,
    land_checkpoint_path,
    landed_positions,
    location_positions,
    newest_location,
    read_checkpoint_location,
    rewind_positions,
)
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap

log = logging.getLogger(__name__)


def next_offsets(
    current: Mapping[TopicPartition, SourcePartition],
    landed: Mapping[SourcePartition, int],
    read: Mapping[SourcePartition, int],
    known: Mapping[str, KnownTopic],
) -> dict[TopicPartition, int]:
    """Return the next offset to read of every partition that was landed or read before.

    The relay ends before the read position if a batch ended in control records. It ends after it if a commit, or a checkpoint
    location, does not cover the last batch. The further one is right in all cases. A generation that a truncation began
    resumes at the truncation, and a recreated topic is landed from its beginning; otherwise records that left it since would
    be lost silently.
    """
    positions = {}
    for tp, source in current.items():
        candidates = [several[source] for several in (landed, read) if source in several]
        if not candidates and source.generation > 1:
            candidates.append(known[source.topic].starts_at(source.partition))
        if candidates:
            positions[tp] = max(candidates)
    return positions


def checkpoint_offsets(
    lake: Lake, alias: str, number: int, known: Mapping[str, KnownTopic]
) -> dict[SourcePartition, int]:
    """Return the next offsets to read by the newest checkpoint location of a number, or of an earlier one.

    A query keeps a location for each number. A query that ended between its claim and its first
    batch left an empty location; an earlier one then holds the offsets of partitions in their first generation.
    """
    location = newest_location(lake, alias, number)
    read = location_positions(location, known)
    if location.path == land_checkpoint_path(lake, alias, number):
        return read
    return {source: offset for source, offset in read.items() if source.generation == 1}


def forget_lost_positions(lake: Lake, alias: str, writer: FencedRelayWriter) -> bool:
    """Take back positions that the relay does not hold any more. Return whether there were any.

    A power cut may leave commits without content, and a backup or Delta's RESTORE an older relay. Law F (repeatable): no
    position past the newest whole commit counts, and what was landed after it is landed again.
    """
    newest, accounted = writer.history.last_batch, accounted_until(lake, alias)
    # Of a query only the checkpoint location records what the relay held.
    known = newest_location(lake, alias, writer.number).landed if writer.history.read_to is None else None
    is_older = newest is not None and (
        (known is not None and (newest.checkpoint, newest.batch) < known)
        or (accounted is not None and newest.landed_at is not None and newest.landed_at < accounted)
    )
    if not (is_older or writer.history.was_restored):
        return False
    again = rewind_positions(lake, alias)
    log.warning(
        "land.relay_went_back source=%s holds=%s landed=%s offsets=%s",
        alias,
        "nothing" if newest is None else f"{newest.checkpoint}/{newest.batch}",
        known or accounted,
        sum(again.values()),
    )
    return True


def read_landing_state(
    lake: Lake, alias: str, writer: FencedRelayWriter, topics: SourceTopics, *, resumes: bool
) -> tuple[LandedPositions, CheckpointLocation]:
    """Read the landed positions by the relay, and the checkpoint location from which a query would resume.

    Raises:
        CheckpointLost: a query would resume (`resumes`) from a location that lacks batches of the relay.
        LanderReplaced: the writer held a number, and another lander has claimed the relay.
    """
    while True:
        number, batch, landed = writer.number, writer.history.last_batch, landed_positions(lake, alias)
        path = land_checkpoint_path(lake, alias, number)
        # Only a query resumes under its old number.
        is_query = writer.history.read_to is None
        known = read_checkpoint_location(lake, path) if is_query else CheckpointLocation(path, -1, -1)
        lost = None
        if is_query and resumes:
            lost = _checkpoint_lost_error(alias, known, landed.reached, signed=batch, number=number, topics=topics)
        if lost is not None or not is_query:
            # Another lander may have claimed the relay, and landed, between these reads.
            writer.refresh()
            if number != writer.number or (lost is not None and batch != writer.history.last_batch):
                continue
        if lost is not None:
            raise lost
        return landed, known


def _checkpoint_lost_error(
    alias: str,
    known: CheckpointLocation,
    landed: Mapping[SourcePartition, int],
    *,
    signed: LandingCommit | None,
    number: int,
    topics: SourceTopics,
) -> CheckpointLost | None:
    """Return the error of a checkpoint location that lacks batches of the relay, or None if it has them all.

    `landed` is the next offset to land by the relay, `signed` the newest batch in it.
    """
    if signed is None or signed.checkpoint != number:
        return None
    planned = kafka_positions(known.planned or {})
    is_ahead = any(
        position > planned.get(source.tp, position)
        for source, position in landed.items()
        if source.topic in topics.known
        and source.generation == topics.known[source.topic].generation_of(source.partition)
    )
    if signed.batch <= known.last_planned and not is_ahead:
        return None
    return CheckpointLost(
        f"the checkpoint location {known.path} {known.ending}, but the relay of {alias} holds batch {signed.batch} of it",
        consequence="Spark would reuse batch numbers that Delta has already seen, and Delta would drop those records "
        "silently; nothing was landed",
        remedy=f"mirrorlake land --source {alias} --rebuild-checkpoint (continues after the relay's last offsets; "
        "loses and repeats nothing)",
        location=known.path,
    )


def refuse_other_cluster(alias: str, recorded: str | None, found: str) -> None:
    """Raise `ClusterIdMismatch` if the relay's records come from another cluster, whose offsets mean something else.

    `recorded` is None if nothing was landed yet.
    """
    if recorded in (None, found):
        return
    raise ClusterIdMismatch(
        f"cluster {alias} has id {found}, but its relay holds records of {recorded}",
        consequence="offsets of two clusters would mix; nothing was landed",
        remedy=f"correct clusters.{alias}.bootstrap_servers; if {alias} was set up again, give the new cluster its own alias, or "
        "set lake.root to an empty folder",
        alias=alias,
        recorded=str(recorded),
        found=found,
    )


def source_gap_error(alias: str, expired: Sequence[Gap], truncated: Sequence[Gap]) -> SourceGap:
    """Return the refusal to skip `expired` ranges, which left the source, or `truncated` ones, which its log lost."""
    causes, consequences = [], []
    if expired:
        ranges = ", ".join(f"{gap.source} {gap.first_offset}..{gap.last_offset}" for gap in expired)
        causes.append(f"records left {alias} before they were landed: {ranges}")
        consequences.append("they are gone from the source")
    if truncated:
        places = ", ".join(
            f"{gap.source} landed up to {gap.last_offset + 1}, truncated at {gap.first_offset}" for gap in truncated
        )
        causes.append(f"the log of {alias} was truncated (an unclean election, a lost or restored disk): {places}")
        consequences.append(
            "the relay keeps what it landed past the truncation, and the source holds other records there"
        )
    return SourceGap(
        "; ".join(causes),
        consequence="; ".join([*consequences, "nothing after them was landed"]),
        remedy=f"set clusters.{alias}.land.on_gap: record to write the ranges to the table gaps and continue"
        + (" (the source's records past the truncation then become a generation of their own)" if truncated else ""),
        gaps=(*expired, *truncated),
    )
