"""The results of landing, republishing and a run of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from mirrorlake.model.control import Pause
from mirrorlake.render import Displayable, Sheet, badge, plural


@dataclass(frozen=True, slots=True)
class LandResult(Displayable):
    """The result of one landing run; `paused` are the pauses that prevented it."""

    source: str
    records: int
    paused: tuple[Pause, ...] = ()

    def sheet(self) -> Sheet:
        """Return the number of landed records, and the pauses."""
        return _sheet(self.source, f"{plural(self.records, 'record')} landed", self.paused)


@dataclass(frozen=True, slots=True)
class RepublishResult(Displayable):
    """The result of one republishing run; `paused` are the pauses that stopped it, or some of its topics."""

    flow: str
    records: int
    paused: tuple[Pause, ...] = ()

    def sheet(self) -> Sheet:
        """Return the number of republished records, and the pauses."""
        return _sheet(self.flow, f"{plural(self.records, 'record')} republished", self.paused)


def _sheet(name: str, did: str, paused: tuple[Pause, ...]) -> Sheet:
    return Sheet(title=name, badge=badge("paused") if paused else None, facts=(did,), parts=tuple(map(str, paused)))


class _Ran(NamedTuple):
    landed: list[LandResult]
    republished: list[RepublishResult]


class Ran(Displayable, _Ran):
    """The result of a run: a pair of the landings and the republishings.

    Example:
        >>> landed, republished = mirror.run(once=True)  # doctest: +SKIP
    """

    __slots__ = ()

    def since(self, before: Ran) -> Ran:
        """Subtract an earlier result of the same run.

        Example:
            >>> Ran([LandResult("east", 9)], []).since(Ran([LandResult("east", 2)], [])).landed[0].records
            7
        """
        landed = {one.source: one.records for one in before.landed}
        sent = {one.flow: one.records for one in before.republished}
        return Ran(
            [replace(one, records=one.records - landed.get(one.source, 0)) for one in self.landed],
            [replace(one, records=one.records - sent.get(one.flow, 0)) for one in self.republished],
        )

    def sheet(self) -> Sheet:
        """Return a line a stream."""
        return Sheet(
            title="run",
            facts=(
                f"{plural(sum(one.records for one in self.landed), 'record')} landed",
                f"{plural(sum(one.records for one in self.republished), 'record')} republished",
            ),
            parts=tuple(one.sheet() for one in (*self.landed, *self.republished)),
        )
