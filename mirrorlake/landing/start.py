"""Where a landing query starts, and what forbids it to start at all.

A position comes from tables and the checkpoint location, never from a window of time: a clock that is set back by hours
changes none.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from mirrorlake.errors import CheckpointLost, OtherCluster, SourceGap
from mirrorlake.lake import (
    CheckpointLocation,
    KnownTopic,
    Lake,
    LandedPositions,
    OneWriter,
    Signed,
    SourceTopics,
    committed_before,
    forget_past,
    kafka_positions,
    land_checkpoint_path,
    landed_positions,
    newest_location,
    read_checkpoint_location,
)
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap

log = logging.getLogger(__name__)


def next_offsets(
    current: Mapping[TopicPartition, SourcePartition],
    landed: Mapping[SourcePartition, int],
    resumed: Mapping[TopicPartition, int],
    known: Mapping[str, KnownTopic],
) -> dict[TopicPartition, int]:
    """Return the next offset to read of every partition that was landed, or planned, before.

    The relay may stand before the checkpoint location where a batch ended in control records, and after it where
    the last batch was written but not yet committed: the further one is right in both cases. A life that a cut began goes on
    at the cut, and a topic that was created again is landed from its beginning, or what has left it since would be silent.

    Args:
        current: the partitions of the source, each in its present life.
        landed: the next offset to land, by the relay.
        resumed: the next offset to read, by the checkpoint location.
        known: the source's topics.
    """
    positions = {}
    for tp, source in current.items():
        candidates = [landed[source]] if source in landed else []
        if tp in resumed and (source in landed or source.generation == 1):
            candidates.append(resumed[tp])
        if not candidates and source.generation > 1:
            candidates.append(known[source.topic].starts_at(source.partition))
        if candidates:
            positions[tp] = max(candidates)
    return positions


def resumed_offsets(
    lake: Lake,
    alias: str,
    known: CheckpointLocation,
    number: int,
    topics: SourceTopics,
    recreated: Collection[str],
) -> dict[TopicPartition, int]:
    """Return the next offsets to read by the checkpoint location `known`: past control records, which the relay does not hold.

    A lander that ended between its claim and its first batch left an empty one. The newest before it, up to `number`, tells the
    same of partitions in their first life; without it, control records that have left the source would count as lost.
    """
    if known.committed:
        # Offsets of an earlier life say nothing of the new one.
        return {tp: at for tp, at in kafka_positions(known.committed).items() if tp.topic not in recreated}
    return {
        tp: at
        for tp, at in kafka_positions(committed_before(lake, alias, number)).items()
        if tp.topic in topics.known and topics.known[tp.topic].generation_of(tp.partition) == 1
    }


def forget_lost_positions(lake: Lake, alias: str, writer: OneWriter) -> bool:
    """Take back the positions that a relay does not hold any more; return whether there were any.

    A power cut may leave commits without content, and a backup or Delta's RESTORE an older relay. Law C: no position past the
    newest whole commit counts, and what was landed after it is landed again.
    """
    newest = writer.last_batch
    known = newest_location(lake, alias, writer.number)
    is_older = newest is not None and known.landed is not None and (newest.checkpoint, newest.batch) < known.landed
    if not (is_older or writer.was_restored):
        return False
    again = forget_past(lake, alias)
    log.warning(
        "land.relay_went_back source=%s holds=%s landed=%s offsets=%s",
        alias,
        "nothing" if newest is None else f"{newest.checkpoint}/{newest.batch}",
        known.landed,
        sum(again.values()),
    )
    return True


def landed_and_known(
    lake: Lake, alias: str, writer: OneWriter, topics: SourceTopics, *, rebuild: bool
) -> tuple[LandedPositions, CheckpointLocation]:
    """Read how far landing has come, by the relay and by the checkpoint location of the number that `writer` has seen.

    Raises:
        CheckpointLost: the two disagree, and the location is not to be made again (`rebuild`).
        LanderReplaced: the writer held a number, and another lander has taken the relay over.
    """
    while True:
        seen, landed = (writer.number, writer.last_batch), landed_positions(lake, alias)
        number, signed = seen
        known = read_checkpoint_location(lake, land_checkpoint_path(lake, alias, number))
        try:
            if not rebuild:
                _refuse_if_lost(alias, known, landed.reached, signed=signed, number=number, topics=topics)
        except CheckpointLost:
            # Another lander may have landed between these looks, in a location of its own number.
            writer.look()
            if seen == (writer.number, writer.last_batch):
                raise
        else:
            return landed, known


def _refuse_if_lost(
    alias: str,
    known: CheckpointLocation,
    landed: Mapping[SourcePartition, int],
    *,
    signed: Signed | None,
    number: int,
    topics: SourceTopics,
) -> None:
    """Raise `CheckpointLost` where the checkpoint location does not know all that the relay holds of it.

    `landed` is the next offset to land by the relay, `signed` the newest batch that it holds.
    """
    if signed is None or signed.checkpoint != number:
        return
    planned = kafka_positions(known.planned or {})
    is_ahead = any(
        position > planned.get(TopicPartition(source.topic, source.partition), position)
        for source, position in landed.items()
        if source.topic in topics.known
        and source.generation == topics.known[source.topic].generation_of(source.partition)
    )
    if signed.batch <= known.last_planned and not is_ahead:
        return
    raise CheckpointLost(
        f"the checkpoint location {known.path} {known.ending}, but the relay of {alias} holds batch {signed.batch} of it",
        consequence="Spark would start again under numbers that Delta has already seen and drop records "
        "silently; nothing was landed",
        remedy=f"mirrorlake land --source {alias} --rebuild-checkpoint (goes on after the relay's last offsets; "
        "loses and repeats nothing)",
        location=known.path,
    )


def refuse_other_cluster(alias: str, recorded: str | None, found: str) -> None:
    """Raise `OtherCluster` where the relay's records come from another cluster, whose offsets mean something else.

    `recorded` is None where nothing was landed by a release that records the id.
    """
    if recorded in (None, found):
        return
    raise OtherCluster(
        f"the lake holds records of cluster {recorded} under the alias {alias}, and cluster {found} answers at its addresses",
        consequence="offsets of two clusters would mix; nothing was landed",
        remedy=f"if the addresses are wrong: mend clusters.{alias}.bootstrap_servers; if {alias} was set up again: give the "
        "new cluster an alias of its own, or set lake.root to an empty folder",
        alias=alias,
        recorded=str(recorded),
        found=found,
    )


def source_gap(alias: str, lost: Sequence[Gap], gone: Sequence[Gap]) -> SourceGap:
    """Return the refusal to step over what left a source (`lost`), or over where its log went back (`gone`)."""
    causes, consequences = [], []
    if lost:
        ranges = ", ".join(f"{gap.source} {gap.first_offset}..{gap.last_offset}" for gap in lost)
        causes.append(f"records left {alias} before they were landed: {ranges}")
        consequences.append("they are gone from the source")
    if gone:
        places = ", ".join(
            f"{gap.source} landed up to {gap.last_offset + 1}, cut at {gap.first_offset}" for gap in gone
        )
        causes.append(f"the log of {alias} went back (an unclean election, a lost or restored disk): {places}")
        consequences.append(
            "the relay keeps what it landed past the cut, and the source holds another history from there on"
        )
    return SourceGap(
        "; ".join(causes),
        consequence="; ".join([*consequences, "nothing after them was landed"]),
        remedy=f"set clusters.{alias}.land.on_gap: record to write the ranges to the table gaps and go on"
        + (" (what the source holds from the cut on is then landed as a generation of its own)" if gone else ""),
        gaps=(*lost, *gone),
    )
