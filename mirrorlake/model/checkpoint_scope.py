"""What a checkpoint location has skipped: a stream may go on there only if it carries nothing that was skipped.

A checkpoint location says how far the relay was read, for all topics at once. Rows of a topic that the flow did not carry
then lie before it, and would never be seen again where the flow carries that topic later. So a claim holds the scope of its
checkpoint location; a flow that carries more begins a new one with a backfill, and the ledger's positions keep everything
else from being sent twice (laws E and F). After a crash, a new checkpoint location without progress says that its backfill is
still due.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointScope:
    """What a flow carries: the fingerprint of all that selects topics, and topics of the selection left out for now."""

    selection: str = ""
    without: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The form in which the ledger keeps it; blanks occur in no topic's name."""
        return " ".join((self.selection, *sorted(self.without)))

    @classmethod
    def read(cls, text: str) -> CheckpointScope:
        """Parse the stored text; an empty one dates from before this was stored, and says nothing."""
        selection, *without = text.split(" ")
        return cls(selection, frozenset(without))

    def continues(self, before: CheckpointScope) -> bool:
        """Tell whether this may go on in a checkpoint location of `before`: nothing that it carries was skipped.

        >>> whole, less = CheckpointScope("1f0c"), CheckpointScope("1f0c", frozenset({"orders"}))
        >>> less.continues(whole), whole.continues(less), CheckpointScope("77aa").continues(whole)
        (True, False, False)
        """
        return bool(self.selection) and self.selection == before.selection and before.without <= self.without
