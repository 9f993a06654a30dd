"""Plan which files leave a relay by its retention, and what holds the others back, by file statistics alone.

A file is what Kafka calls a segment: it leaves as a whole once its newest record is past the bound, oldest offsets first, so
one suffix of a partition remains. Law E: a file stays if a flow has not sent it, landing has not accounted for it, or somebody
has declared a need for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby, zip_longest

from mirrorlake.config.schema import RetentionConfig
from mirrorlake.lake import is_uncompressed
from mirrorlake.maintenance.compaction import SentUpTo
from mirrorlake.maintenance.results import HeldBack
from mirrorlake.maintenance.tiers import KeptFile
from mirrorlake.model.flow import SourcePartition
from mirrorlake.render import format_duration, format_size

# Returns why a file is still needed; None if it is not.
Guard = Callable[[KeptFile], "KeepReason | None"]


@dataclass(frozen=True, slots=True)
class KeepReason:
    """Why a file must stay, and what a person can do about it; `held_by` names who needs it."""

    held_by: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringFiles:
    """Files of one source partition that leave together, in offset order, and the retention setting as reason."""

    source: SourcePartition
    files: tuple[KeptFile, ...]
    reason: str

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def plan_expiry(
    files: Iterable[KeptFile],
    retention: Callable[[str], RetentionConfig | None],
    guards: Callable[[RetentionConfig], Sequence[Guard]],
    now: datetime,
) -> tuple[list[ExpiringFiles], list[HeldBack]]:
    expired: list[ExpiringFiles] = []
    held: list[HeldBack] = []

    def place(file: KeptFile) -> tuple[str, int]:
        return file.source.topic, file.source.partition

    ordered = sorted(files, key=lambda file: (*place(file), file.source.generation, file.first_offset))
    for _, several in groupby(ordered, key=place):
        kept = list(several)
        settings = retention(kept[0].source.topic)
        if settings is None:
            continue
        due = _due(kept, settings, now)
        asked = guards(settings)
        leaving: dict[SourcePartition, list[KeptFile]] = {}
        for number, (file, following) in enumerate(zip_longest(kept[:due], kept[1 : due + 1])):
            need = _overlapping(file, following) or next((one for ask in asked if (one := ask(file))), None)
            if need is not None:
                held.append(_held(kept[number:due], need))
                break
            leaving.setdefault(file.source, []).append(file)
        reason = _in_words(settings)
        expired += [
            ExpiringFiles(source=source, files=tuple(files), reason=reason) for source, files in leaving.items()
        ]
    return expired, held


def _in_words(settings: RetentionConfig) -> str:
    age = () if settings.age is None else (f"older than {format_duration(settings.age)}",)
    large = () if settings.bytes is None else (f"past {format_size(settings.bytes)} of the partition",)
    return f"retention: {' or '.join((*age, *large))}"


def _due(files: Sequence[KeptFile], settings: RetentionConfig, now: datetime) -> int:
    # Uncompressed size overstates a file, and expired records do not come back.
    sizes = [0 if is_uncompressed(file.path) else file.size for file in files]
    held = sum(sizes)
    for number, file in enumerate(files):
        is_old = settings.age is not None and file.newest is not None and file.newest < now - settings.age
        # As in Kafka: the remaining files are never smaller than the bound.
        is_much = settings.bytes is not None and held - sizes[number] >= settings.bytes
        if not (is_old or is_much):
            return number
        held -= sizes[number]
    return len(files)


def _overlapping(file: KeptFile, following: KeptFile | None) -> KeepReason | None:
    if following is None or following.source != file.source or following.first_offset > file.last_offset:
        return None
    why = f"its offsets {file.first_offset}..{file.last_offset} are in another file, too"
    return KeepReason("the relay", why, "mirrorlake repair --check lists the records that are there twice")


def _held(files: Sequence[KeptFile], need: KeepReason) -> HeldBack:
    return HeldBack(
        source=files[0].source,
        from_offset=files[0].first_offset,
        records=sum(file.records for file in files),
        bytes=sum(file.size for file in files),
        held_by=need.held_by,
        why=need.why,
        remedy=need.remedy,
    )


def not_sent(standing: SentUpTo) -> Guard:
    """Hold back records that a flow has not sent by its ledger: running, waiting, parked or never started."""
    flow = standing.flow

    def needs(file: KeptFile) -> KeepReason | None:
        if standing.is_past(file):
            return None
        if standing.positions is None:
            why = f"the position of {flow.name} is not known: {flow.target}, which holds its ledger, does not answer"
            return KeepReason(flow.name, why, f"bring {flow.target} back; mirrorlake doctor")
        position, start = standing.positions.get(file.source), flow.start.timestamp
        if position is None and start is not None and file.newest is not None and file.newest < start:
            # The flow starts at a later time: it will never send this file.
            return None
        why = f"{flow.name} has sent {file.source} up to {position or 0}"
        return KeepReason(
            flow.name, why, f"run the flow, or, if it is gone for good: mirrorlake retire --flow '{flow.name}'"
        )

    return needs


def not_accounted(accounted: Callable[[], Mapping[SourcePartition, int]]) -> Guard:
    """Hold back records that landing has not accounted for: a gap would be mistaken for a removal (law E).

    `accounted` is called when the first file is due.
    """
    known = lru_cache(accounted)

    def needs(file: KeptFile) -> KeepReason | None:
        if file.last_offset < known().get(file.source, 0):
            return None
        return KeepReason(
            "landing", "landing has not accounted for it yet", "run the mirror, or mirrorlake land --once"
        )

    return needs


def replayable(window: timedelta, now: datetime) -> Guard:
    """Hold back records within the replay window, by timestamp or landing time."""

    def needs(file: KeptFile) -> KeepReason | None:
        youngest = max(file.landed_by, file.newest or file.landed_by)
        if not window or youngest < now - window:
            return None
        why = f"it is in the replay window of {format_duration(window)}"
        return KeepReason("maintenance.replay_window", why, "shorten maintenance.replay_window")

    return needs


def not_proven(flow: str, until: Mapping[SourcePartition, int], carries: Callable[[str], bool]) -> Guard:
    """Hold back records that verify has not proven on the target of a flow."""

    def needs(file: KeptFile) -> KeepReason | None:
        if not carries(file.source.topic) or file.last_offset < until.get(file.source, 0):
            return None
        why = f"verify has proven {file.source} of {flow} only up to {until.get(file.source, 0)}"
        return KeepReason(flow, why, f"mirrorlake verify --flow '{flow}'")

    return needs


def quarantined(flow: str, firsts: Mapping[SourcePartition, int]) -> Guard:
    """Hold back records from the first one on that a flow has quarantined and that was neither sent nor filtered since."""

    def needs(file: KeptFile) -> KeepReason | None:
        first = firsts.get(file.source)
        if first is None or file.last_offset < first:
            return None
        remedy = f"mend the rule or the cause, then: mirrorlake quarantine --flow '{flow}' --redrive (docs/rules.md)"
        return KeepReason(flow, f"{flow} has quarantined {file.source} at {first}", remedy)

    return needs


def replaying(name: str, spans: Mapping[SourcePartition, tuple[int, int]]) -> Guard:
    """Hold back records that an unfinished replay reads: `[first, end)` of each span."""

    def needs(file: KeptFile) -> KeepReason | None:
        first, end = spans.get(file.source, (0, 0))
        if file.last_offset < first or file.first_offset >= end:
            return None
        why = f"the unfinished replay {name} reads {file.source} from {first} to {end}"
        return KeepReason(name, why, f"mirrorlake replay --name {name} finishes it")

    return needs
