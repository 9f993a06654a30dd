"""The scope of a checkpoint location: a stream may resume there only if it carries nothing that was skipped.

A checkpoint location says how far the relay was read, for all topics at once. Rows of a topic that the flow did not
carry are then before it, and would never be read if the flow carries that topic later. So a claim records the scope
of its checkpoint location. A flow that carries more begins a new location with a backfill, and the ledger's positions
prevent everything else from being sent twice (laws E and F). After a crash, a new checkpoint location without
progress means that its backfill is still due.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointScope:
    """The topics a flow carries: the fingerprint of its selection, and selected topics left out for now."""

    selection: str = ""
    without: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The form stored in the ledger; no topic's name contains blanks."""
        return " ".join((self.selection, *sorted(self.without)))

    @classmethod
    def read(cls, text: str) -> CheckpointScope:
        """Parse the stored text; an empty text matches none."""
        selection, *without = text.split(" ")
        return cls(selection, frozenset(without))

    def continues(self, before: CheckpointScope) -> bool:
        """Return whether this scope may resume in a checkpoint location of `before`: nothing that it carries was skipped."""
        return bool(self.selection) and self.selection == before.selection and before.without <= self.without
