"""List the relay's files and their source partitions by the table's log, without opening a file or running a query."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.file_spans import TAG, FileSpan, footer_spans, logged_spans, spans_from_text, tag_text
from mirrorlake.lake.opening import read_commit
from mirrorlake.lake.relay_files import RelayFile, as_utc, build_files, unreadable_error
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.ranges import OffsetRange
from mirrorlake.runtime import open_address, open_folder

# Checking for the next commit costs nothing; listing the log of a month takes seconds.
CHECK_INTERVAL_S = 60.0
_COMMIT = re.compile(r"\d{20}\.json")
_FIRST, _LAST = (*SOURCE_KEY, "offset"), (*SOURCE_KEY, "offset", "timestamp")


class RelayLog:
    """Follow the files of one relay from commit to commit, without Spark.

    `version` is the newest version whose files were listed. A task continues after it by `RelayLog(FolderTables(), path, version)`.
    """

    def __init__(self, tables: FolderTables, path: str, version: int = -1) -> None:
        self._tables = tables
        self.path = path
        self.version = version
        self._next_check = 0.0
        self._log = open_folder(f"{path}/_delta_log")

    def files(self, positions: Mapping[SourcePartition, int], *, others: bool = True) -> list[RelayFile]:
        """List files that may have a record at or past the positions, or of `others` than their partitions; follow later commits."""
        self.version, actions = self._tables.files(self.path, RelayPart(positions, others=others))
        try:
            return [file for file in self._listed(actions) if file.last_offset >= positions.get(file.source, -1)]
        except FileNotFoundError as error:
            raise unreadable_error(str(error.filename or error), error) from error

    def files_of(self, source: SourcePartition, span: OffsetRange) -> list[RelayFile]:
        """List the files that may have a record of one source partition in a range."""
        part = RelayPart({source: span.first}, ends={source: span.end}, others=False)
        self.version, actions = self._tables.files(self.path, part)
        return [
            file
            for file in self._listed(actions)
            if file.source == source and file.first_offset < span.end and file.last_offset >= span.first
        ]

    def new_files(self, positions: Mapping[SourcePartition, int]) -> list[RelayFile]:
        """List the files added since the last call, or all past the positions if the log was cleaned up meanwhile."""
        # `version` advances only after all was read, so that a retry after a store's failure returns these files, too.
        version, found = self.version, list[RelayFile]()
        while (text := read_commit(self._log, version + 1)) is not None:
            version += 1
            try:
                found += self._held(_added(text))
            except FileNotFoundError:
                # A file that had to be opened was rewritten and deleted meanwhile.
                return self.files(positions)
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + CHECK_INTERVAL_S
            if self._newest() > version and read_commit(self._log, version + 1) is None:
                # The commits in between were cleaned up.
                return self.files(positions)
        self.version = version
        return found

    def _newest(self) -> int:
        return max((int(name[:20]) for name in self._log.names() if _COMMIT.fullmatch(name)), default=-1)

    def _listed(self, actions: pa.Table) -> list[RelayFile]:
        # By column, because dictionaries of all statistics would take a third of the time for 100 000 files.
        names, count = set(actions.column_names), len(actions)
        ends = [
            zip(*(actions[name].to_pylist() if name in names else [None] * count for name in columns), strict=True)
            for columns in ([f"min.{key}" for key in _FIRST], [f"max.{key}" for key in _LAST])
        ]
        added = list(map(_Added, actions["path"].to_pylist(), actions["num_records"].to_pylist(), *ends))
        several = logged_spans(self.path, [file.path for file in added if file.source_key() is None])
        return list(self._held(file._replace(spans=several.get(file.path, ())) for file in added))

    def _held(self, several: Iterable[_Added]) -> Iterator[RelayFile]:
        # Names in the log are URL-encoded, as in addresses.
        base = self.path if ":/" in self.path else Path(self.path).as_uri()
        sources: dict[tuple[Any, ...], SourcePartition] = {}
        for file in several:
            uri = f"{base}/{file.path}"
            if file.spans:
                yield from build_files(uri, file.spans)
            elif (key := file.source_key()) is not None:
                source = sources.get(key) or sources.setdefault(key, SourcePartition(*key))
                last, newest = file.most[-2:]
                yield RelayFile(source, int(file.least[-1]), int(last), int(file.records), uri, newest=_time(newest))
            else:
                yield from _opened(uri)


class _Added(NamedTuple):
    """A file of an add action: the minima of `_FIRST` and maxima of `_LAST` by its statistics, the spans by its tags."""

    path: str
    records: int
    least: tuple[Any, ...]
    most: tuple[Any, ...]
    spans: Sequence[FileSpan] = ()

    def source_key(self) -> tuple[Any, ...] | None:
        """Return the only source partition in the statistics, or None if there are several or none."""
        *key, _ = self.least
        *last_key, last, _ = self.most
        return None if None in key or key != last_key or last is None else tuple(key)


def _added(commit: str) -> list[_Added]:
    actions = [json.loads(line) for line in commit.splitlines() if line]
    if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
        # Maintenance and repair rewrite records that were landed and sent long before.
        return []
    added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
    stats = [json.loads(add.get("stats") or "{}") for add in added]
    # delta-rs writes no tags: its commits for a lander have the spans beside the signature.
    told: dict[str, str] = next(
        (json.loads(action["commitInfo"].get(TAG, "{}")) for action in actions if "commitInfo" in action), {}
    )
    return [
        _Added(
            add["path"],
            of.get("numRecords", 0),
            tuple(map(of.get("minValues", {}).get, _FIRST)),
            tuple(map(of.get("maxValues", {}).get, _LAST)),
            spans_from_text(tag_text(add.get("tags")) or told.get(add["path"])),
        )
        for add, of in zip(added, stats, strict=True)
    ]


def _time(value: str | datetime | None) -> datetime | None:
    """Return a time of a file's statistics in UTC: from a text in the log, or a time from delta-rs."""
    if isinstance(value, str):
        # Python 3.10 does not parse Z.
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return None if value is None else as_utc(value)


def _opened(uri: str) -> list[RelayFile]:
    """Return a file's `RelayFile` of each source partition, by its footer, or by its columns if another writer made it."""
    filesystem, path = open_address(uri)
    try:
        with filesystem.open_input_file(path) as source:
            parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            if spans := footer_spans(parquet.metadata):
                return build_files(uri, spans)
            rows = parquet.read(columns=[*SOURCE_KEY, "offset", "timestamp"], use_threads=False)
    except pa.ArrowInvalid as error:
        raise unreadable_error(uri, error) from error
    asked = [("offset", "min"), ("offset", "max"), ("offset", "count"), ("timestamp", "max")]
    groups = rows.group_by(list(SOURCE_KEY), use_threads=False).aggregate(asked).to_pylist()
    return [
        RelayFile(
            SourcePartition(*(group[key] for key in SOURCE_KEY)),
            group["offset_min"],
            group["offset_max"],
            group["offset_count"],
            uri,
            shared=len(groups) > 1,
            newest=as_utc(group["timestamp_max"]),
        )
        for group in groups
    ]
