"""Choose files of several source partitions to rewrite into one file per partition, for long reads.

A landing batch writes one file for any number of partitions. Split too soon, a thousand partitions are a thousand files for a
handful; so batches wait until they are as many as their output files, or large together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from mirrorlake.lake import is_uncompressed
from mirrorlake.maintenance.tiers import LARGE, KeptFile
from mirrorlake.model.flow import SourcePartition
from mirrorlake.timing import timing

# Batches with one partition, among those with several; a merged file is larger.
_SMALL = 64 << 10
# Compressed data holds about this many times its size.
_RATIO = 4


@dataclass(frozen=True, slots=True)
class Split:
    """Files to rewrite together, each as its parts, into sorted `outputs` of one source partition each."""

    files: tuple[tuple[KeptFile, ...], ...]
    outputs: tuple[tuple[KeptFile, ...], ...]
    bytes: int

    @property
    def is_due(self) -> bool:
        count, sizes = len(self.files), timing()
        is_many = count >= sizes.compaction_fanout and len(self.outputs) <= count
        return self.bytes >= LARGE or count >= sizes.compaction_max_waiting or is_many


def splits(free: Sequence[KeptFile], others: Iterable[KeptFile]) -> list[Split]:
    """Return the due splits; no output spans a file or part in `others`, which stay."""
    firsts: dict[SourcePartition, list[int]] = defaultdict(list)
    for part in chain(free, others):
        firsts[part.source].append(part.first_offset)
    for offsets in firsts.values():
        offsets.sort()
    by_file: dict[str, list[KeptFile]] = defaultdict(list)
    for part in free:
        by_file[part.path].append(part)
    divided = {part.source for part in free if part.part_of}
    files = [
        tuple(parts)
        for parts in by_file.values()
        if parts[0].part_of or (parts[0].size < _SMALL and parts[0].source in divided)
    ]
    files.sort(key=lambda parts: (parts[0].landed_by, parts[0].path))
    found = [Split(group, tuple(_outputs(group, firsts)), size) for group, size in _groups(files)]
    return [one for one in found if one.is_due and any(parts[0].part_of for parts in one.files)]


def _groups(files: Iterable[tuple[KeptFile, ...]]) -> Iterator[tuple[tuple[tuple[KeptFile, ...], ...], int]]:
    """Yield files in landing order, in groups that fit into memory; a larger file is its own group."""
    group: list[tuple[KeptFile, ...]] = []
    held = 0
    for parts in files:
        size = parts[0].part_of or parts[0].size
        weight = size if is_uncompressed(parts[0].path) else size * _RATIO
        if group and weight >= LARGE:
            yield tuple(group), held
            group, held = [], 0
        group.append(parts)
        held += weight
        if held >= LARGE:
            yield tuple(group), held
            group, held = [], 0
    if group:
        yield tuple(group), held


def _outputs(
    files: Iterable[Sequence[KeptFile]], firsts: dict[SourcePartition, list[int]]
) -> Iterator[tuple[KeptFile, ...]]:
    output: list[KeptFile] = []
    for part in sorted(chain.from_iterable(files), key=lambda part: (part.source, part.first_offset)):
        if output and not _follows(output[-1], part, firsts[part.source]):
            yield tuple(output)
            output = []
        output.append(part)
    yield tuple(output)


def _follows(before: KeptFile, part: KeptFile, firsts: Sequence[int]) -> bool:
    """Return whether a part follows in its source partition, with no other between."""
    between = bisect_right(firsts, part.first_offset) - bisect_right(firsts, before.first_offset)
    return before.source == part.source and before.last_offset < part.first_offset and between == 1
