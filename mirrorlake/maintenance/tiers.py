"""Choose files of a source partition to merge, so that each record is rewritten two or three times.

Files are in tiers by size. 32 neighbouring files of a tier become one file of the next tier; 128 MiB become a large file,
which is never rewritten. A partition with 2 MiB in five minutes reaches that in two steps, a slower one in three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from mirrorlake.lake import is_uncompressed
from mirrorlake.model.flow import SourcePartition
from mirrorlake.timing import timing

_MIB = 1 << 20
LARGE, FULL = 64 * _MIB, 128 * _MIB
# Neighbouring bounds differ 32-fold, the fan-out: a merged file leaves its tier.
_TIERS = ((2 * _MIB, LARGE), (64 << 10, 2 * _MIB), (0, 64 << 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """The share of one source partition in a live relay file, by its statistics or its spans.

    `landed_by` is its newest batch. `newest` is its newest timestamp, None without statistics. `part_of` is the size of a file
    that also holds other source partitions, else 0; `size` is the share of this one.
    """

    path: str
    size: int
    records: int
    source: SourcePartition
    first_offset: int
    last_offset: int
    landed_by: datetime
    newest: datetime | None = None
    part_of: int = 0

    @property
    def is_final(self) -> bool:
        """Whether the file is never rewritten: it is large, and compressed."""
        return self.size >= LARGE and not is_uncompressed(self.path)


def due(files: Iterable[KeptFile]) -> list[list[KeptFile]]:
    """Return the groups of files to rewrite, each into one file.

    Overlapping files stay: `mirrorlake repair` explains them. Parts of files with several source partitions stay, too
    (`splits.py`), and no group spans such a part.
    """
    found: list[list[KeptFile]] = []
    run: list[KeptFile] = []
    for file in sorted(files, key=lambda file: (file.source, file.first_offset)):
        if run and (file.source != run[-1].source or file.first_offset <= run[-1].last_offset):
            found += _of_run(run)
            run = []
        if file.is_final or file.part_of:
            found += _of_run(run)
            run = []
        else:
            run.append(file)
    return found + _of_run(run)


def _of_run(run: Sequence[KeptFile]) -> list[list[KeptFile]]:
    found, part, size = [], [], 0
    for file in run:
        part.append(file)
        size += file.size
        if size >= FULL:
            found.append(part)
            part, size = [], 0
    newest = full_tier([file.size for file in part])
    return [*found, part[-newest:]] if newest else found


def full_tier(sizes: Sequence[int]) -> int:
    """Return how many newest files make up a full tier, with files of lower tiers among them; 0 if none is full."""
    for least, bound in _TIERS:
        newest = list(takewhile(lambda size: size < bound, reversed(sizes)))  # noqa: B023  used up at once
        if sum(size >= least for size in newest) >= timing().compaction_fanout:
            return len(newest)
    return 0
