"""Deaths of a process of the product within a test's own, at a crash point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mirrorlake.crash_points import acting


class Killed(BaseException):
    """The process ends here."""


def killed() -> None:
    raise Killed


@contextmanager
def dying(point: str, *, nth: int = 1) -> Iterator[None]:
    """Have the block end when it reaches this point for the nth time."""
    with pytest.raises(Killed), acting(point, killed, nth=nth):
        yield
