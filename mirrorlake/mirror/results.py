"""The results of landing, republishing and a run of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mirrorlake.model.control import Pause
from mirrorlake.model.plan import Note
from mirrorlake.render import Displayable, Sheet, badge, document, plural


@dataclass(frozen=True, slots=True)
class LandResult(Displayable):
    """The result of one landing run: pauses that prevented it, and `notes` on names in the settings that mirror nothing."""

    source: str
    records: int
    paused: tuple[Pause, ...] = ()
    notes: tuple[Note, ...] = ()

    def sheet(self) -> Sheet:
        """Return the number of landed records, the pauses and the notes."""
        return _sheet(self.source, f"{plural(self.records, 'record')} landed", self.paused, self.notes)


@dataclass(frozen=True, slots=True)
class RepublishResult(Displayable):
    """The result of one republishing run; `paused` are the pauses that stopped it, or some of its topics."""

    flow: str
    records: int
    paused: tuple[Pause, ...] = ()

    def sheet(self) -> Sheet:
        """Return the number of republished records, and the pauses."""
        return _sheet(self.flow, f"{plural(self.records, 'record')} republished", self.paused)


@dataclass(frozen=True, slots=True)
class TableResult(Displayable):
    """The result of one run of a typed table: records read, bad ones among them, and the pauses that prevented it."""

    table: str
    records: int
    bad: int = 0
    paused: tuple[Pause, ...] = ()

    def sheet(self) -> Sheet:
        """Return the number of records, and the pauses."""
        bad = f", {plural(self.bad, 'bad record')}" if self.bad else ""
        return _sheet(f"table {self.table}", f"{plural(self.records, 'record')} written{bad}", self.paused)


def _sheet(name: str, did: str, paused: tuple[Pause, ...], notes: tuple[Note, ...] = ()) -> Sheet:
    parts = tuple(map(str, (*paused, *notes)))
    return Sheet(title=name, badge=badge("paused") if paused else None, facts=(did,), parts=parts)


class _Ran(NamedTuple):
    landed: list[LandResult]
    republished: list[RepublishResult]


class Ran(Displayable, _Ran):
    """The result of a run: a pair of the landings and the republishings; `tables` are those of typed tables.

    Example:
        >>> landed, republished = mirror.run(once=True)  # doctest: +SKIP
    """

    tables: tuple[TableResult, ...]

    def __new__(
        cls, landed: list[LandResult], republished: list[RepublishResult], tables: Sequence[TableResult] = ()
    ) -> Ran:
        """Make a pair."""
        made = super().__new__(cls, landed, republished)
        made.tables = tuple(tables)
        return made

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        tables = {"tables": document(self.tables)} if self.tables else {}
        return {name: document(found) for name, found in self._asdict().items()} | tables

    def since(self, before: Ran) -> Ran:
        """Subtract an earlier result of the same run.

        Example:
            >>> Ran([LandResult("east", 9)], []).since(Ran([LandResult("east", 2)], [])).landed[0].records
            7
        """
        landed = {one.source: one.records for one in before.landed}
        sent = {one.flow: one.records for one in before.republished}
        written = {one.table: one.records for one in before.tables}
        return Ran(
            [replace(one, records=one.records - landed.get(one.source, 0)) for one in self.landed],
            [replace(one, records=one.records - sent.get(one.flow, 0)) for one in self.republished],
            [replace(one, records=one.records - written.get(one.table, 0)) for one in self.tables],
        )

    def sheet(self) -> Sheet:
        """Return a line a stream."""
        return Sheet(
            title="run",
            facts=(
                f"{plural(sum(one.records for one in self.landed), 'record')} landed",
                f"{plural(sum(one.records for one in self.republished), 'record')} republished",
            ),
            parts=tuple(one.sheet() for one in (*self.landed, *self.republished, *self.tables)),
        )
