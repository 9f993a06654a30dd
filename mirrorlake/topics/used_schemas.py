"""Which schemas the records of a flow name: ids in the frames of the relay's keys and values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Audit, Lake, RelayPart, from_micros, micros
from mirrorlake.model.plan import Change

MARK = "schemas"
"""The kind of the change that records how far records were read for their ids."""

# Keys that are numbers look like frames, each with an id of its own.
_MAX_IDS = 1_000
# Landing groups commit by clocks of their own.
_OVERLAP = timedelta(hours=1)
# A newer mark is worth a change only if much was read for it.
_MARK_AGE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SchemaUses:
    """The ids that a flow's records name, each with the subjects of its topics (`orders-value`), and the records read for them.

    `mark` records them, so that the next one reads newer records only; None if that is not worth it yet.
    """

    subjects: Mapping[int, frozenset[str]]
    records: Mapping[int, int]
    mark: Change | None = None


def read_schema_uses(
    lake: Lake, flow: FlowConfig, audit: Audit, *, now: datetime, newest: timedelta | None = None
) -> SchemaUses:
    """Read the ids that are named by the flow's records in the relay, past the last mark.

    An id need not be one: a value of another kind may begin with the same byte. Schemas named in a header are not read.

    Args:
        lake: the lake.
        flow: the flow.
        audit: holds the marks.
        now: the time of the new mark.
        newest: without a mark, the age up to which records are read; None for all of them.
    """
    marks = [entry for entry in audit.entries(flow.target, MARK) if entry.object == flow.name]
    # Other topics may have older records.
    known = marks[-1].after if marks and marks[-1].after["topics"] == _selection(flow) else None
    first = None if newest is None else now - newest
    since = first if known is None else from_micros(known["until"]) - _OVERLAP
    subjects: defaultdict[int, set[str]] = defaultdict(set)
    for schema_id, names in (known or {"ids": {}})["ids"].items():
        subjects[int(schema_id)] |= set(names)
    records = Counter[int]()
    for (topic, part), ids in _framed(lake, flow.source, since, flow.carries).items():
        if len(ids) <= _MAX_IDS:
            records.update(ids)
            for schema_id in ids:
                subjects[schema_id].add(f"{topic}-{part}")
    found = {schema_id: frozenset(names) for schema_id, names in subjects.items()}
    is_due = known is None or from_micros(known["until"]) < now - _MARK_AGE
    return SchemaUses(found, records, _mark(flow, found, now) if is_due and found else None)


def _mark(flow: FlowConfig, subjects: Mapping[int, frozenset[str]], now: datetime) -> Change:
    ids = {str(schema_id): sorted(names) for schema_id, names in sorted(subjects.items())}
    return Change(
        where=flow.target,
        kind=MARK,
        name=flow.name,
        action="record",
        after={"until": micros(now), "topics": _selection(flow), "ids": ids},
        reason="the next plan reads newer records only",
        flow=flow.name,
    )


def _selection(flow: FlowConfig) -> list[list[str]]:
    return [list(flow.topics.expressions), list(flow.exclude_topics.expressions)]


def _framed(
    lake: Lake, alias: str, since: datetime | None, carries: Callable[[str], bool]
) -> dict[tuple[str, str], Counter[int]]:
    """Count the records of each id by topic and part (`key` or `value`)."""
    part = RelayPart({}, since=since)
    rows: list[Any] = lake.query_rows(_FRAMES, relay=alias, part=part, since=part.since, missing_ok=True)
    found: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for row in rows:
        if carries(row.topic):
            found[row.topic, row.part][int(row.frame[2:], 16)] += int(row.records)
    return found


_FRAMES = " UNION ALL ".join(
    f"""
    SELECT topic, '{part}' AS part, hex(left({part}, 5)) AS frame, count(*) AS records FROM {{relay}}
    WHERE unix_micros(landed_at) > :since AND hex(left({part}, 5)) LIKE '00________'
    GROUP BY topic, hex(left({part}, 5))
    """  # noqa: S608 - the two names stand below
    for part in ("value", "key")
)
