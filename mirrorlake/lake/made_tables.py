"""Record the side tables that a lake was made with, so that one removed by hand is reported, not read as empty.

Two properties of the table `gaps` store them, like the lake's version; only creating a table costs a commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirrorlake.lake.schema import SIDE_TABLES

_MADE, _AGAIN = "mirrorlake.sideTables", "mirrorlake.sideTablesMadeAgain"


@dataclass(frozen=True, slots=True)
class MadeTables:
    """The names of the side tables that were `made`, and of those later missing and made `again`, empty."""

    made: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> MadeTables:
        """Read the names from the properties; a lake of an older release has none.

        >>> MadeTables.of({"mirrorlake.sideTables": "gaps,proofs"}).removed(["proofs", "audit"])
        ('proofs',)
        """
        return cls(*(frozenset(filter(None, properties.get(name, "").split(","))) for name in (_MADE, _AGAIN)))

    def removed(self, missing: Collection[str]) -> tuple[str, ...]:
        """Return the names of removed tables: missing ones that were made, and those made again since."""
        return tuple(sorted(self.made & set(missing) | self.again))

    def after(self, missing: Collection[str], *, is_shown: bool) -> dict[str, str]:
        """Return the properties after missing tables were made; `is_shown`: a person saw in a plan that they were missing."""
        again = self.again if is_shown else self.again | (self.made & set(missing))
        names = [table.name for table in SIDE_TABLES]
        return {_MADE: ",".join(sorted({*names, *self.made})), _AGAIN: ",".join(sorted(again))}

    @staticmethod
    def forgotten() -> dict[str, str]:
        """Return the property that clears the names of tables made again."""
        return {_AGAIN: ""}
