"""A world of records in the relays of two regions, typed tables over them, and what these must be by the fold."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake

from mirrorlake import Mirror, load
from tests.kit.commands import write_conf
from tests.kit.lake import NOON, LakeBuilder, arrow
from tests.kit.typed_fold import Entry, Place, Record, fold

SOURCES = ("east", "west")
UPSERT = {"mode": "upsert"}
BOTH = ({"topics": "sales"}, {"topics": "sales", "name": "newest", **UPSERT})


def every_cut(batches: int, name: str = "cut", **entry: Any) -> list[dict[str, Any]]:
    """Return an entry for each cut of so many batches: its name ends in the batches after which `World.land_each` keeps it."""
    ends = [str(end) for end in range(1, batches)]
    cuts = [cut for length in range(batches) for cut in combinations(ends, length)]
    return [{"topics": "sales", **entry, "name": "_".join([name, *cut])} for cut in cuts]


class World:
    """Records in the relays of two regions, typed tables over them, and what these must be."""

    def __init__(
        self, folder: Path, spark: Any, *entries: Entry, sources: Sequence[str] = SOURCES, **addresses: str
    ) -> None:
        self.lake, self.spark, self._sources = LakeBuilder(folder), spark, sources
        shutil.copytree(self.lake.root / "relay" / "east", self.lake.root / "relay" / "west")
        self.records, self.gone, self._ends = list[Record](), set[Place](), dict[tuple[str, str, int], int]()
        self._unseen = dict[str, set[Place]]()
        # Settings of every flow, and of the source east.
        self.flow, self.east = dict[str, Any](), dict[str, Any]()
        self._addresses = {**dict.fromkeys((*sources, "central"), "127.0.0.1:1"), **addresses}
        self.set_tables(*entries)

    def set_tables(self, *entries: Entry) -> None:
        self.entries = {entry.get("name", entry["topics"]): entry for entry in entries}

    def open(self, *names: str) -> Mirror:
        """Open the mirror as a new process does, with all tables or some."""
        flows = [{"source": source, "target": "central", "topics": ".*", **self.flow} for source in self._sources]
        entries = [self.entries[name] for name in names or self.entries]
        conf = write_conf(self.lake.folder, self._addresses, flows, tables=entries, east=self.east)
        return load(conf, spark=self.spark)

    def keep(self, *names: str) -> None:
        self.open(*names).keep_tables(once=True)

    def land(self, *records: Any) -> None:
        """Land records, or values of records, as one batch of each source."""
        landed = []
        for one in (given if isinstance(given, Record) else Record(given) for given in records):
            at, ends = (one.source, one.topic, one.partition), self._ends
            if at not in ends and not any(known[:2] == at[:2] for known in ends):
                self.lake.observe(one.topic, cluster=one.source, topic_id="-".join(at[:2]), partitions=3)
            ends[at] = ends.get(at, 0) + 1
            stamp = len(self.records) + len(landed) if one.at < 0 else one.at
            landed.append(replace(one, offset=ends[at] - 1, at=stamp))
        self.records += landed
        for source, several in groupby(sorted(landed, key=lambda one: one.place), key=lambda one: one.source):
            write_deltalake(self.relay(source), arrow("relay", [_relay_row(one) for one in several]), mode="append")
        changed = {(one.source, one.topic, one.partition) for one in landed}
        plain = {"kind": "landed", "generation": 1, "observed_at": NOON, "landed_at": datetime.now(timezone.utc)}
        rows = [
            {**plain, "source": at[0], "topic": at[1], "partition": at[2], "position": self._ends[at]} for at in changed
        ]
        self.lake.add("positions", *rows)

    def land_each(self, *batches: Sequence[Any]) -> None:
        """Land batches one after another, keep each table after those that its name ends in and after the last, and check all."""
        for number, batch in enumerate(batches, 1):
            self.land(*batch)
            if now := [name for name in self.entries if str(number) in name.split("_")[1:]]:
                self.keep(*now)
        self.keep()
        self.check()

    def erase(self, *offsets: int, source: str = "east", topic: str = "sales", partition: int = 0) -> None:
        chosen = f"partition = {partition} AND offset IN ({', '.join(map(str, offsets))})"
        assert self.open().erase(source, topic, where=chosen, reason="she asked", apply=True).records == len(offsets)
        self.gone |= {(source, topic, partition, offset) for offset in offsets}

    def expire(self, offsets: int) -> None:
        """Have the relay of east lose the first records of sales-0, as its retention does."""
        relay = DeltaTable(self.relay("east"))
        relay.alter.set_table_properties({"delta.appendOnly": "false"})
        relay.delete(f"topic = 'sales' AND partition = 0 AND offset < {offsets}")
        relay.alter.set_table_properties({"delta.appendOnly": "true"})
        told = {
            "removal": "r",
            "first_offset": 0,
            "last_offset": offsets - 1,
            "record_count": offsets,
            "kind": "expired",
        }
        for version in (None, relay.version()):
            self.lake.add("removed", **told, topic="sales", reason="retention", relay_version=version)

    def rebuild(self, *names: str) -> None:
        for name in names or self.entries:
            self.open().rebuild_table(name, apply=True)
            self._unseen[name] = {*self.gone}

    def relay(self, source: str) -> str:
        return str(self.lake.root / "relay" / source)

    def expected(self, name: str) -> tuple[dict[Place, str], set[Place]]:
        entry, unseen = self.entries[name], self._unseen.get(name, set())
        of_table = [one for one in self.records if re.fullmatch(entry["topics"], one.topic)]
        left = [one for one in of_table if one.place not in self.gone]
        return fold(entry, left, [one for one in of_table if one.place not in unseen])

    def check(self, *names: str, proves: bool = False) -> None:
        """Compare tables with the fold, and with `proves` have `verify` find them equal."""
        wrong = []
        for name in names or self.entries:
            rows, bad = self.expected(name)
            wrong += [f"{name} {text}" for text in _differences(rows, self.rows(name))]
            wrong += [f"{name} {place}: bad in one of both" for place in sorted(bad ^ {*self.bad(name)})]
            proof = self.open().verify_table(name) if proves else None
            wrong += [str(proof)] if proof and not proof.equal else []
        assert not wrong, "by the fold, and in the table:\n" + "\n".join(wrong)

    def location(self, name: str) -> Path:
        return self.lake.root / "tables" / name

    def columns(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return columns of a table in the order of its records."""
        order = ("_source", "_topic", "_generation", "_partition", "_offset")
        found = DeltaTable(self.location(name)).to_pyarrow_table(columns=[*{*order, *columns}]).to_pylist()
        found.sort(key=lambda row: [row[column] for column in order])
        return [tuple(row[column] for column in columns) for row in found]

    def rows(self, name: str) -> dict[Place, str]:
        """Return the rows of a table as the fold does."""
        found = {}
        for row in DeltaTable(self.location(name)).to_pyarrow_table().to_pylist():
            place = tuple(row.pop(f"_{column}") for column in ("source", "topic", "partition", "offset"))
            assert place not in found, f"{name} has {place} twice"
            columns = {column: value for column, value in row.items() if column not in ("_generation", "_timestamp")}
            found[place] = json.dumps(columns, sort_keys=True, ensure_ascii=False, default=str)
        return found

    def bad(self, name: str) -> dict[Place, str]:
        """Return the reasons of a table's bad records."""
        rows = DeltaTable(self.lake.location("bad_records")).to_pyarrow_table().to_pylist()
        of_table = [row for row in rows if row["table_name"] == name]
        found = {(row["source"], row["topic"], row["partition"], row["offset"]): row["reason"] for row in of_table}
        assert len(found) == len(of_table), f"{name} has a bad record twice"
        return found


def _relay_row(one: Record) -> dict[str, Any]:
    place = {"topic": one.topic, "generation": 1, "partition": one.partition, "offset": one.offset}
    key = one.key.encode() if isinstance(one.key, str) else one.key
    stamps = {
        "timestamp": NOON + timedelta(seconds=one.at),
        "timestamp_type": 0,
        "landed_at": datetime.now(timezone.utc),
    }
    return {**place, **stamps, "key": key, "value": one.value, "headers": None}


def _differences(wanted: Mapping[Place, str], found: Mapping[Place, str]) -> Iterator[str]:
    for place in sorted({*wanted, *found}):
        one, other = (json.loads(rows[place]) if place in rows else None for rows in (wanted, found))
        if one is None or other is None:
            yield f"{place}: {'no row' if one is None else 'a row'}, {'no row' if other is None else 'a row'}"
            continue
        # 1, 1.0 and True are equal, and no column is not NULL.
        columns = [{name: json.dumps(value) for name, value in row.items()} for row in (one, other)]
        for name in sorted({*one, *other}):
            if len({side.get(name) for side in columns}) > 1:
                yield f"{place} {name}: {columns[0].get(name)}, {columns[1].get(name)}"
