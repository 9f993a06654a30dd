"""Which side tables a lake was made with: one that was removed by hand is named, and not only read as one without rows.

Two properties of the table `gaps` keep them, as the version of the lake: no commit is spent unless a table is made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirrorlake.lake.schema import SIDE_TABLES

_MADE, _AGAIN = "mirrorlake.sideTables", "mirrorlake.sideTablesMadeAgain"


@dataclass(frozen=True, slots=True)
class MadeTables:
    """The names of the side tables that were `made`, and of those that were missing later and were made `again`, empty."""

    made: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> MadeTables:
        """Read them from the properties; a lake of an older release names none.

        >>> MadeTables.of({"mirrorlake.sideTables": "gaps,proofs"}).removed(["proofs", "audit"])
        ('proofs',)
        """
        return cls(*(frozenset(filter(None, properties.get(name, "").split(","))) for name in (_MADE, _AGAIN)))

    def removed(self, missing: Collection[str]) -> tuple[str, ...]:
        """Name those that somebody removed: missing ones that were made, and those made again since."""
        return tuple(sorted(self.made & set(missing) | self.again))

    def after(self, missing: Collection[str], *, is_shown: bool) -> dict[str, str]:
        """Return the properties once missing tables were made; `is_shown`: a person saw in a plan that they were."""
        again = self.again if is_shown else self.again | (self.made & set(missing))
        names = [table.name for table in SIDE_TABLES]
        return {_MADE: ",".join(sorted({*names, *self.made})), _AGAIN: ",".join(sorted(again))}

    @staticmethod
    def forgotten() -> dict[str, str]:
        """Return the property that forgets which ones were made again."""
        return {_AGAIN: ""}
