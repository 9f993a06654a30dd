"""Findings of the doctor: each subject examined, its outcome, and the fix if it is not fine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal, NamedTuple

from mirrorlake.render import Displayable, Mood, Sheet, Table, badge, plural, table

Severity = Literal["ok", "warning", "failure"]
_ORDER = {"failure": 0, "warning": 1, "ok": 2}
_MAX_SUBJECTS = 3
MOODS: dict[Severity, Mood] = {"failure": "bad", "warning": "warn", "ok": "note"}


class CheckOutcome(NamedTuple):
    subject: str
    severity: Severity
    detail: str
    fix: str = ""


def fine(subject: str, detail: str) -> CheckOutcome:
    return CheckOutcome(subject, "ok", detail)


def warning(subject: str, detail: str, fix: str) -> CheckOutcome:
    return CheckOutcome(subject, "warning", detail, fix)


def failure(subject: str, detail: str, fix: str) -> CheckOutcome:
    return CheckOutcome(subject, "failure", detail, fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check for one subject; `fix` is the next command or setting if it is not fine.

    Example:
        >>> Finding(check="kafka.reachable", layer="cluster", subject="east", detail="3 brokers").docs
        'docs/doctor.md#kafkareachable'
    """

    json_include: ClassVar[tuple[str, ...]] = ("ok", "docs")

    check: str
    layer: str
    subject: str
    severity: Severity = "ok"
    detail: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether the subject is fine."""
        return self.severity == "ok"

    @property
    def docs(self) -> str:
        """The address of the check's documentation."""
        return f"docs/doctor.md#{anchor(self.check)}"


def anchor(name: str) -> str:
    """Return the anchor of a check's heading on a page.

    >>> anchor("target.max-message-bytes")
    'targetmax-message-bytes'
    """
    return re.sub(r"[^\w-]", "", name)


class Findings(Displayable, list[Finding]):
    """The findings in the order of the layers: a list of `Finding` that renders itself, by layer what is fine."""

    _in_full = False

    def in_full(self) -> Findings:
        """Show each fine check with its details."""
        full = Findings(self)
        full._in_full = True
        return full

    @property
    def bad(self) -> list[Finding]:
        """The findings that are not fine, failures first."""
        return sorted((one for one in self if not one.ok), key=lambda one: _ORDER[one.severity])

    def sheet(self) -> Sheet:
        """Return first the findings that are not fine, with their fixes, then what is fine."""
        bad = self.bad
        # In badges, names are never shortened, so that they can be copied.
        rows = [(badge(one.check, MOODS[one.severity]), one.subject, one.detail, one.fix) for one in bad]
        parts: list[Table | str] = [table("", ["check", "subject", "finding", "next"], rows)] if bad else []
        good = [one for one in self if one.ok]
        if good and self._in_full:
            parts.append(table("fine", ["check", "subject", "seen"], _by_check(good)))
        elif good:
            # The wrong settings file looks healthy, too.
            parts += [f"{one.subject}: {one.detail}" for one in good if one.check == "settings.file"]
            parts.append(table("fine; --all shows each check", ["layer", "checks", "such as"], _by_layer(good)))
        mood: Mood = "bad" if any(one.severity == "failure" for one in bad) else "warn"
        return Sheet(
            title="doctor",
            badge=badge(plural(len(bad), "finding"), mood) if bad else badge("ok"),
            facts=(f"{plural(len(self), 'subject')} checked",),
            parts=tuple(parts),
        )


def _by_check(good: list[Finding]) -> list[tuple[object, ...]]:
    """Join the outcomes of one check for many subjects into one row."""
    rows: list[tuple[object, ...]] = []
    for name, several in groupby(good, key=lambda one: one.check):
        found = list(several)
        subjects = list(dict.fromkeys(one.subject for one in found))
        details = list(dict.fromkeys(one.detail for one in found))
        rows.append((badge(name, "good"), some(subjects), some(details, "; ")))
    return rows


def _by_layer(good: list[Finding]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for layer, several in groupby(good, key=lambda one: one.layer):
        names = list(dict.fromkeys(one.check for one in several))
        rows.append((badge(layer, "good"), len(names), some(names)))
    return rows


def some(texts: Iterable[str], between: str = ", ") -> str:
    """Join the first three texts, and count the others.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    several = list(texts)
    more = len(several) - _MAX_SUBJECTS
    return between.join(several[:_MAX_SUBJECTS]) + (f" and {more} more" if more > 0 else "")
