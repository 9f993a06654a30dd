"""Read the committed positions of a cluster's groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import PositionKey
from mirrorlake.model.flow import TopicPartition

# If reading all topics of all groups would move more positions than this, a group is read in full every tenth sample only.
FULL_READ_EVERY, _MAX_POSITIONS = 10, 200_000


class GroupPositions:
    """The committed positions of groups, and those that each group was last seen to have."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._positions: dict[tuple[str, str], dict[TopicPartition, int]] = {}

    def read(self, alias: str, partitions: Mapping[TopicPartition, int], *, number: int) -> dict[PositionKey, int]:
        """Read the positions of all sampled groups of a cluster; `number` of the sample says which are due to be read in full."""
        groups, selection = self._context.groups(alias), self._context.config.sampling.group_selection
        names = [n for n in groups.states() if selection.matches(n) and not n.startswith("mirrorlake.")]
        wants_all = len(names) * len(partitions) <= _MAX_POSITIONS
        asked: dict[str, Iterable[TopicPartition]] = {}
        for turn, name in enumerate(sorted(names)):
            known = self._positions.get((alias, name))
            is_due = (turn + number) % FULL_READ_EVERY == 0
            asked[name] = partitions if wants_all or known is None or is_due else known.keys() & partitions.keys()
        unsure: dict[str, MirrorlakeError] = {}
        for name, committed in groups.committed_each(asked, unsure=unsure).items():
            self._positions[alias, name] = {tp: at.offset for tp, at in committed.items()}
        # A group that could not be read is where it was: it has neither read on nor gone.
        return {
            PositionKey(alias, None, tp.topic, partitions[tp], tp.partition, "group", name): at
            for name in asked
            for tp, at in self._positions.get((alias, name), {}).items()
            if tp in partitions
        }
