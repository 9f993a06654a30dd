"""Every value that shows itself, built around one text that somebody else wrote."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta, timezone
from enum import EnumType
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import mirrorlake
from mirrorlake.doctor import Findings
from mirrorlake.doctor.examination import Catalogue, Check, Finding
from mirrorlake.mirror.results import LandResult, Ran, RepublishResult
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPosition, Resume
from mirrorlake.model.plan import Change
from mirrorlake.model.verify import Difference, PartitionProof, VerifyReport, VerifyReports
from mirrorlake.records import Page
from mirrorlake.records.record import Missing
from mirrorlake.render import Displayable
from mirrorlake.replay.plan import ReplayPlan
from mirrorlake.replay.replay import Replay
from mirrorlake.status.hops import LagVerdict
from mirrorlake.status.status import FlowStatus, PartitionStatus, Status
from mirrorlake.topics import RulesShown
from mirrorlake.topics.rules_plan import RuleShown
from tests.builders import browsed, hop_place, judged, page_of, sample

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)


def partition_status(
    topic: str = "orders", partition: int = 0, state: str = "caught_up", lag: int = 0
) -> PartitionStatus:
    """Return where a partition stands, its time lag a second an offset, with the verdict that its state mostly has."""
    return PartitionStatus(
        topic=topic,
        partition=partition,
        source_end=1000,
        landed=1000,
        republished=1000 - lag,
        offset_lag=lag,
        time_lag_ms=None if state == "not_started" else lag * 1000,
        verdict={"caught_up": "OK", "behind": "WARNING", "not_started": "UNKNOWN", "paused": "PAUSED"}.get(
            state, "STALL"
        ),
        state=state,
        reason=f"it is {state}",
    )


def status(text: str = "east->central", *rows: PartitionStatus) -> FlowStatus:
    """Return a status of one flow."""
    return FlowStatus(flow=text, partitions=rows or (partition_status(text),), observed_at=NOON)


def report(text: str, *, equal: bool = False) -> VerifyReport:
    """Return a report with one partition and, where it is not equal, one difference."""
    proof = PartitionProof(
        topic=text, generation=1, partition=0, landed=9, republished=9, withheld=0, verified=9 * equal
    )
    found = Difference(where="target", problem="altered", topic=text, partition=0, offset=7)
    return VerifyReport(flow=text, equal=equal, partitions=(proof,), differences=() if equal else (found,))


def group_position(group: str, action: Any = "move", metadata: str = "", reason: str = "exact") -> GroupPosition:
    """Return one position of a group."""
    resume = Resume(
        source=SourcePartition(group, 1, 0),
        upstream_offset=12345,
        target=TopicPartition(f"east.{group}", 0),
        downstream_offset=None if action == "hold" else 12300,
        exact=False,
        records_again=1200,
    )
    return GroupPosition(
        group=group, resume=resume, metadata=metadata, target_offset=None, action=action, reason=reason
    )


def page(text: str) -> Page:
    """Return a page with one record, all of it by somebody else."""
    content = text.encode("utf-8", "surrogatepass")
    record = browsed(7, topic=text, key=content, value=content, headers=((text, content),))
    missing = (Missing(first=8, last=9, kind="absent"),)
    return page_of([record], start=7, end=10, cluster=text, topic=text, missing=missing)


def lag_verdict(text: str) -> LagVerdict:
    """Return the verdict on a group that stands still and is overtaken by retention."""
    place = hop_place("consumed", text, flow=text, source=text, topic=text, cluster=text)
    looks = [NOON + timedelta(seconds=second) for second in range(3)]
    window = [sample(at, 7, 9, waiting=NOON, lag_ms=second * 1000) for second, at in enumerate(looks)]
    return judged({place: window}, retention_ms=60_000)


def filled(kind: type, text: str, /, **given: Any) -> Any:
    """Return a dataclass with `text` in every field that takes one, one row of everything, and 7 for numbers."""
    others = {name: _filling(hint, text) for name, hint in _hints(kind).items() if name not in given}
    return kind(**given, **others)


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of what a dataclass or a named tuple is made of."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if each.init} if is_dataclass(kind) else hints


def _filling(hint: Any, text: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return filled(hint, text)
    if origin in (Union, UnionType):
        return _filling(arguments[0], text)
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        return tuple(_filling(one, text) for one in arguments if one is not ...)
    if origin in (dict, Mapping):
        return dict([[_filling(one, text) for one in arguments]])
    if origin is not None:
        return frozenset([_filling(arguments[0], text)])
    if isinstance(hint, EnumType):
        return next(iter(hint))
    plain: dict[Any, Any] = {bytes: text.encode("utf-8", "surrogatepass"), bool: False, int: 7, float: 7.0}
    return {str: text, Any: text, datetime: NOON, **plain}[hint]


@cache
def _kinds() -> dict[str, type]:
    """Return the dataclasses of the package that show themselves, by name."""
    for module in pkgutil.walk_packages(mirrorlake.__path__, "mirrorlake."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = [Displayable]
    for kind in found:
        found += kind.__subclasses__()
    mine = {kind.__name__: kind for kind in found if is_dataclass(kind) and kind.__module__.startswith("mirrorlake.")}
    # Which room a test loaded first decides nothing.
    return dict(sorted(mine.items()))


def every(text: str) -> list[Displayable]:
    """Return one value of each kind, with `text` wherever text may come from others."""
    landing, sending = filled(LandResult, text), filled(RepublishResult, text)
    made = filled(Change, text, kind="topic", action="create")
    replay = filled(ReplayPlan, text, changes=(made,), state="new")
    unused: Any = None
    own = [
        status(text),
        Status(flows=(status(text),), observed_at=NOON),
        page(text),
        lag_verdict(text),
        replay,
        Replay(unused, replay),
        VerifyReports([report(text), report(text, equal=True)]),
        RulesShown([filled(RuleShown, text)]),
        Findings([filled(Finding, text)]),
        Catalogue([filled(Check, text, run=list)]),
        Ran([landing], [sending]),
    ]
    taken = {type(one).__name__ for one in own}
    return [*own, *(filled(kind, text) for name, kind in _kinds().items() if name not in taken)]
