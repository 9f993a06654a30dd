"""Order the files of several source partitions so that a file of many partitions is read once."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from mirrorlake.lake.relay_files import COLUMNS, RelayFile, read_file, read_in_order
from mirrorlake.model.flow import SourcePartition


def read_by_source(
    files: Iterable[RelayFile], *, columns: Sequence[str] = COLUMNS
) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
    """Yield the records of files, those of each source partition in offset order and once (law D)."""
    for several in by_file(files):
        if len(several) > 1 and several[0].source == several[-1].source:
            yield from ((several[0].source, rows) for rows in read_in_order(several, columns=columns))
        else:
            yield from ((part.source, rows) for part, rows in read_file(several, columns=columns))


def group_overlapping(files: Iterable[RelayFile]) -> list[list[RelayFile]]:
    """Sort files by source partition and offset, and group those of one partition whose offsets overlap."""
    found: list[list[RelayFile]] = []
    reached = -1
    for file in sorted(files, key=_upstream):
        if found and found[-1][0].source == file.source and file.first_offset <= reached:
            found[-1].append(file)
            reached = max(reached, file.last_offset)
        else:
            found.append([file])
            reached = file.last_offset
    return found


def by_file(files: Iterable[RelayFile]) -> Iterator[list[RelayFile]]:
    """Yield the parts that are read together: parts of one file, by row, or overlapping files of one source partition.

    Those of a source partition come in offset order (law D). A file comes once, unless two of its source partitions order it and
    another file differently.
    """
    queues: dict[SourcePartition, deque[list[RelayFile]]] = defaultdict(deque)
    for several in group_overlapping(files):
        queues[several[0].source].append(several)
    waiting = Counter(several[0].uri for queue in queues.values() for several in queue if len(several) == 1)
    begun: dict[str, list[RelayFile]] = defaultdict(list)
    ready: list[list[RelayFile]] = []

    def advance(source: SourcePartition) -> None:
        queue = queues[source]
        if not queue:
            return
        if len(queue[0]) > 1:
            ready.append(queue.popleft())
            return
        [file] = queue.popleft()
        parts = begun[file.uri]
        parts.append(file)
        if len(parts) == waiting[file.uri]:
            ready.append(begun.pop(file.uri))

    # The last ready group comes first, so that files of one partition follow one another.
    for source in reversed(queues):
        advance(source)
    while ready or begun:
        if ready:
            several = ready.pop()
        else:
            # The files wait for one another: the ready parts of the first are read now, and the rest of it later.
            several = begun.pop(next(iter(begun)))
            waiting[several[0].uri] -= len(several)
        yield sorted(several, key=lambda file: file.first_row or 0) if several[0].shared else several
        for source in {file.source: None for file in several}:
            advance(source)


def _upstream(file: RelayFile) -> tuple[str, int, int, int, int]:
    # Comparing whole files instead takes 5 ms for the two thousand files of a turn.
    source = file.source
    return source.topic, source.generation, source.partition, file.first_offset, file.last_offset
