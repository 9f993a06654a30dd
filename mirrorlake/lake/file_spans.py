"""The spans of a relay's file: the rows and offsets of each source partition in it.

A turn of landing writes one file, whatever the number of partitions. Its spans are in its add action's `tags`, which a reader gets
without opening the file, and in the file's own footer, for commits of other writers than `LandingLog`: delta-rs (1.6) does not
write or show tags, but its log checkpoints include them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from mirrorlake.model.flow import SourcePartition
from mirrorlake.runtime import open_folder

TAG = "mirrorlake.spans"
_COMMIT = re.compile(r"(\d{20})\.json")
# Log checkpoints of one part or several. Version 2 has spans in sidecar files; those are read from the footers instead.
_LOG_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\.\d{10}\.\d{10})?\.parquet")
_NUMBERS = 5


class FileSpan(NamedTuple):
    """Consecutive rows of a file with records of one source partition; `newest_ms` is their newest timestamp."""

    source: SourcePartition
    first_offset: int
    last_offset: int
    first_row: int
    records: int
    newest_ms: int

    def joined(self, following: FileSpan) -> FileSpan:
        return self._replace(
            first_offset=min(self.first_offset, following.first_offset),
            last_offset=max(self.last_offset, following.last_offset),
            records=self.records + following.records,
            newest_ms=max(self.newest_ms, following.newest_ms),
        )


def spans_to_text(spans: Sequence[FileSpan]) -> str:
    """Return spans, in the order of their rows, as a text of about 20 bytes each, with differences of offsets and times."""
    newest = max(span.newest_ms for span in spans)
    groups = [
        [
            *of,
            [
                number
                for span in several
                for number in (
                    span.source.partition,
                    span.first_offset,
                    span.last_offset - span.first_offset,
                    span.records,
                    newest - span.newest_ms,
                )
            ],
        ]
        for of, several in groupby(spans, key=lambda span: (span.source.topic, span.source.generation))
    ]
    return json.dumps({"newest": newest, "spans": groups}, separators=(",", ":"))


def spans_from_text(text: str | bytes | None) -> list[FileSpan]:
    """Parse spans; return [] without a text or for another format."""
    spans: list[FileSpan] = []
    row = 0
    try:
        document = json.loads(text or "{}")
        for topic, generation, numbers in document.get("spans", ()):
            columns = (numbers[at::_NUMBERS] for at in range(_NUMBERS))
            for partition, first, length, records, age_ms in zip(*columns, strict=True):
                source = SourcePartition(topic, generation, partition)
                spans.append(FileSpan(source, first, first + length, row, records, document["newest"] - age_ms))
                row += records
    except (ValueError, TypeError, KeyError, AttributeError):
        return []
    return spans


def footer_spans(footer: pq.FileMetaData) -> list[FileSpan]:
    """Read the spans in a file's footer; return [] for a file of another writer."""
    spans = spans_from_text((footer.metadata or {}).get(TAG.encode()))
    return spans if sum(span.records for span in spans) == footer.num_rows else []


def tag_text(tags: Any) -> str | None:
    return (tags or {}).get(TAG)


def logged_spans(path: str, names: Collection[str]) -> dict[str, list[FileSpan]]:
    """Read the spans of some files of a table from the tags in its newest log checkpoint and later commits.

    Names are those in the log. A file is omitted if its commit has no tags, as on an object store, or was cleaned up.
    """
    wanted, found = set(names), dict[str, str]()
    if not wanted or ":/" in path:
        return {}
    log = open_folder(f"{path}/_delta_log")
    entries = log.names()
    checkpoints = [match for match in map(_LOG_CHECKPOINT.fullmatch, entries) if match]
    newest = max((match[1] for match in checkpoints), default="")
    for match in filter(None, map(_COMMIT.fullmatch, entries)):
        if match[1] > newest:
            # The commit may have been cleaned up since.
            with suppress(FileNotFoundError):
                found |= _tagged(log.read(match[0]), wanted)
    for match in checkpoints if wanted - found.keys() else ():
        if match[1] == newest:
            with suppress(FileNotFoundError, pa.ArrowInvalid):
                found |= _kept(f"{path}/_delta_log/{match[0]}", wanted)
    return {name: spans for name, text in found.items() if (spans := spans_from_text(text))}


def _tagged(commit: str, wanted: Collection[str]) -> dict[str, str]:
    adds = (json.loads(line).get("add") for line in commit.splitlines() if TAG in line)
    return {add["path"]: text for add in adds if add and add["path"] in wanted and (text := tag_text(add.get("tags")))}


def _kept(address: str, wanted: Collection[str]) -> dict[str, str]:
    with pq.ParquetFile(address, filesystem=fs.LocalFileSystem()) as parquet:
        adds = parquet.read(columns=["add.path", "add.tags"], use_threads=False).column("add").combine_chunks()
    rows: Iterable[Any] = adds.drop_null().to_pylist()
    return {row["path"]: text for row in rows if row["path"] in wanted and (text := tag_text(dict(row["tags"] or ())))}
