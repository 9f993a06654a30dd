"""What a checkpoint location has skipped: a stream may go on there only if it carries nothing that was skipped.

A stream's checkpoint location says how far it has read the relay, for all topics at once. Rows of a topic that the flow
did not carry at that time lie before it. Where the flow carries that topic later, because its selection was edited or a
pause ended, they would never be seen again. So the ledger keeps, beside the number of the checkpoint location and in the
same transaction, what was carried there; a flow that carries more begins a new checkpoint location with a backfill, and
the ledger's positions keep everything else from being sent twice (laws E and F).

A crash at any instruction is harmless: until the claim is written the old words stand, and from then on the new checkpoint
location has no progress, which is the sign that its backfill is still due.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointScope:
    """What a flow carries.

    Attributes:
        selection: the fingerprint of everything that decides which topics are carried.
        without: topics of the selection that are left out for now.

    Example:
        >>> CheckpointScope("1f0c", frozenset({"orders"})).text
        '1f0c orders'
    """

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
