"""Find the relay's files and what they hold by the table's log: no file is opened, and no query runs (DESIGN 7)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.relay_files import RelayFile
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.runtime import folder_of, open_place

# To ask for the next commit costs nothing; to list the log of a month costs seconds.
CHECK_EVERY_S = 60.0
_COMMIT = re.compile(r"\d{20}\.json")
_FIRST, _LAST = (*SOURCE_KEY, "offset"), (*SOURCE_KEY, "offset", "timestamp")


class RelayLog:
    """Follow the files of one relay that is reached without Spark, from commit to commit.

    `version` is the newest version whose files were listed. A task goes on from it by `RelayLog(FolderTables(), path, version)`.
    """

    def __init__(self, tables: FolderTables, path: str, version: int = -1) -> None:
        self._tables = tables
        self.path = path
        self.version = version
        self._next_check = 0.0
        self._log = folder_of(f"{path}/_delta_log")

    def files(self, positions: Mapping[SourcePartition, int]) -> list[RelayFile]:
        """List the files that may hold a record at or past the positions, and of partitions without one; begin to follow."""
        self.version, actions = self._tables.files(self.path, RelayPart(positions))
        return self._listed(actions)

    def holding(self, source: SourcePartition, offset: int) -> list[RelayFile]:
        """List the files between whose first and last offset an offset lies."""
        part = RelayPart({source: offset}, ends={source: offset + 1}, others=False)
        _, actions = self._tables.files(self.path, part)
        return [
            file
            for file in self._listed(actions)
            if file.source == source and file.first_offset <= offset <= file.last_offset
        ]

    def new_files(self, positions: Mapping[SourcePartition, int]) -> list[RelayFile]:
        """List what was added since the last look; all files past the positions where the log went on without this reader."""
        # Kept once all was read: who asks again after a store's failure gets these files, too.
        version, found = self.version, list[RelayFile]()
        while (text := self._commit(version + 1)) is not None:
            version += 1
            try:
                found += self._held(_added(text))
            except FileNotFoundError:
                # It had to be opened, and was rewritten and deleted meanwhile.
                return self.files(positions)
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + CHECK_EVERY_S
            if self._newest() > version and self._commit(version + 1) is None:
                # The commits in between were cleaned up.
                return self.files(positions)
        self.version = version
        return found

    def _newest(self) -> int:
        """Read the newest commit that the log's folder names."""
        return max((int(name[:20]) for name in self._log.names() if _COMMIT.fullmatch(name)), default=-1)

    def _commit(self, version: int) -> str | None:
        try:
            return self._log.read(f"{version:020}.json")
        except FileNotFoundError:
            return None

    def _listed(self, actions: pa.Table) -> list[RelayFile]:
        # By column: rows as dictionaries of all statistics cost a third of what a list of 100 000 files takes.
        names, count = set(actions.column_names), len(actions)
        ends = [
            zip(*(actions[name].to_pylist() if name in names else [None] * count for name in columns), strict=True)
            for columns in ([f"min.{key}" for key in _FIRST], [f"max.{key}" for key in _LAST])
        ]
        added = map(_Added, actions["path"].to_pylist(), actions["num_records"].to_pylist(), *ends)
        return list(self._held(added))

    def _held(self, several: Iterable[_Added]) -> Iterator[RelayFile]:
        # The log writes names as addresses have them.
        base = self.path if ":/" in self.path else Path(self.path).as_uri()
        sources: dict[tuple[Any, ...], SourcePartition] = {}
        for path, records, least, most in several:
            *key, first = least
            *last_key, last, newest = most
            if None in key or key != last_key or last is None:
                # Rewritten by a stranger, or with statistics that were cut: the columns themselves tell, a byte a record.
                yield from _opened(f"{base}/{path}")
                continue
            place = tuple(key)
            source = sources.get(place) or sources.setdefault(place, SourcePartition(*place))
            yield RelayFile(source, int(first), int(last), int(records), f"{base}/{path}", newest=_time(newest))


class _Added(NamedTuple):
    """A file as an add action names it, with the least of `_FIRST` and the most of `_LAST` where statistics tell them."""

    path: str
    records: int
    least: tuple[Any, ...]
    most: tuple[Any, ...]


def _added(commit: str) -> list[_Added]:
    actions = [json.loads(line) for line in commit.splitlines() if line]
    if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
        # Upkeep and repair rewrite records that were landed, and sent, long before.
        return []
    added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
    stats = [json.loads(add.get("stats") or "{}") for add in added]
    return [
        _Added(
            add["path"],
            of.get("numRecords", 0),
            tuple(map(of.get("minValues", {}).get, _FIRST)),
            tuple(map(of.get("maxValues", {}).get, _LAST)),
        )
        for add, of in zip(added, stats, strict=True)
    ]


def _time(value: str | datetime | None) -> datetime | None:
    """Read a time of a file's statistics: a text in the log, delta-rs makes a time of it."""
    if isinstance(value, str):
        # Python 3.10 reads no Z.
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return value.replace(tzinfo=timezone.utc) if value is not None and value.tzinfo is None else value


def _opened(uri: str) -> list[RelayFile]:
    filesystem, path = open_place(uri)
    with filesystem.open_input_file(path) as source:
        rows = pq.ParquetFile(source).read(columns=[*SOURCE_KEY, "offset"])
    groups = rows.group_by(list(SOURCE_KEY)).aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")])
    return [
        RelayFile(
            SourcePartition(*(group[key] for key in SOURCE_KEY)),
            group["offset_min"],
            group["offset_max"],
            group["offset_count"],
            uri,
            shared=len(groups) > 1,
        )
        for group in groups.to_pylist()
    ]
