"""Where the process of a removal may end."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.maintenance import removal


class Killed(BaseException):
    """The process ends here."""


def killed(*_: Any, **__: Any) -> Any:
    raise Killed


def die_announcing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(removal, "write_removed", killed)


def die_confirming(patch: pytest.MonkeyPatch) -> None:
    """End at the second row that explains a removal, which is written when the records are gone."""
    write, calls = removal.write_removed, []

    def second(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 2:
            raise Killed
        write(*given)

    patch.setattr(removal, "write_removed", second)
