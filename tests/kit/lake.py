"""Lakes of pure tests: rows by the columns of docs/tables.md, written by delta-rs and by no writer of the product."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from mirrorlake import Mirror, load
from tests.kit.commands import write_conf

FLOW = "east->central"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
# Parquet holds microseconds, Kafka and the statistics milliseconds.
LANDED_AT = datetime(2026, 11, 22, 12, 0, 0, 123_456, timezone.utc)
# Rows of these leave: old samples, and bad records with the relay's.
_REMOVABLE = ("positions", "samples", "bad_records")
Row = dict[str, Any]

_COLUMN = re.compile(r"^\|`(\w+)`\|`([^`]+)`\|", re.MULTILINE)
_SIMPLE = {"string": pa.string(), "binary": pa.binary(), "int": pa.int32(), "bigint": pa.int64()}
_SIMPLE |= {"boolean": pa.bool_(), "timestamp": pa.timestamp("us", "UTC")}


def _type(text: str) -> pa.DataType:
    if text in _SIMPLE:
        return _SIMPLE[text]
    outer, inner = text.removesuffix(">").split("<", 1)
    if outer == "array":
        return pa.list_(_type(inner))
    parts = inner.split(",")
    if outer == "map":
        return pa.map_(*map(_type, parts))
    return pa.struct([(name, _type(kind)) for name, kind in (part.split(":") for part in parts)])


def _documented() -> dict[str, pa.Schema]:
    """Return the columns of each table; a section may name some that are listed once, before all sections."""
    text = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
    shared, *sections = text.partition("## Columns")[2].split("\n### ")
    of_all, tables = dict(_COLUMN.findall(shared)), {}
    for section in sections:
        name, intro = section.split("\n")[0], section.partition("\n|")[0]
        named = re.findall(r"`(\w+)`", intro.partition("Shared: ")[2])
        columns = {column: of_all[column] for column in named} | dict(_COLUMN.findall(section))
        tables[name] = pa.schema([(column, _type(kind)) for column, kind in columns.items()])
    return tables


TABLES = _documented()
# Columns that a row of `LakeBuilder.add` has where it names none.
_PLAIN = {"source": "east", "topic": "orders", "generation": 1, "partition": 0, "lane": 0, "ledger_seq": 0}
_PLAIN |= dict.fromkeys(("at", "committed_at", "recorded_at", "detected_at"), NOON)
_PLAIN |= dict.fromkeys(("removed_at", "proven_at", "observed_at"), NOON) | {"evidence": "{}"}


def arrow(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows of a table; a column that a row lacks is null, and one that the table lacks is an error."""
    unknown = set().union(*rows) - set(TABLES[table].names)
    assert not unknown, f"docs/tables.md has no column {unknown} of {table}"
    return pa.Table.from_pylist(rows, TABLES[table])


def rows(topic: str, partition: int, *offsets: int, **columns: Any) -> list[Row]:
    """Return records of the relay; every second one has a key and headers, every third no value."""
    return [
        {
            "topic": topic,
            "generation": 1,
            "partition": partition,
            "offset": offset,
            "timestamp": LANDED_AT - timedelta(seconds=offset),
            "timestamp_type": 0,
            "key": b"k" if offset % 2 else None,
            "value": b"" if offset % 3 else None,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] if offset % 2 else None,
            "landed_at": LANDED_AT,
        }
        | columns
        for offset in offsets
    ]


def map_row(offsets: Sequence[int], downstream: int, topic: str = "orders", partition: int = 0, **columns: Any) -> Row:
    """Return a row of `offset_map`: these upstream offsets stand at dense downstream ones."""
    holes = [{"first": at + 1, "length": then - at - 1} for at, then in pairwise(offsets) if then > at + 1]
    ends = {"first_upstream": offsets[0], "last_upstream": offsets[-1], "first_downstream": downstream}
    source = {"flow": FLOW, "source_topic": topic, "generation": 1, "source_partition": partition}
    target = {"target_topic": f"east.{topic}", "target_partition": partition, "record_count": len(offsets)}
    plain = {"kind": "sent", "holes": holes, "lane": 0, "ledger_seq": 0, "epoch": 1}
    return {**source, **ends, **target, **plain, **columns}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def landed(stamps: Mapping[int, datetime], *, topic: str = "t", generation: int = 1, **more: Any) -> list[Row]:
    """Return records of a relay by offset and timestamp."""
    place = {"topic": topic, "generation": generation, "partition": 0, "timestamp_type": 0, "landed_at": NOON, **more}
    return [{**place, "offset": offset, "timestamp": stamp} for offset, stamp in stamps.items()]


def position_rows(at: datetime, topic: str = "t", generation: int = 1, partition: int = 0, **kinds: int) -> list[Row]:
    """Return rows of `positions` of one moment: the position of each kind."""
    plain = {"source": "east", "topic": topic, "generation": generation, "partition": partition, "observed_at": at}
    return [
        {**plain, "kind": kind, "flow": FLOW if kind == "republished" else None, "position": position}
        for kind, position in kinds.items()
    ]


def sample_rows(at: datetime, *, complete: bool = True, error: str = "", scope: str = "mine") -> list[Row]:
    """Return rows of `samples`, one a subject; with an error, the source did not answer."""
    subjects = (("cluster", "east"), ("cluster", "central"), ("relay", "east"), ("flow", FLOW))
    whys = {subject: error or None if subject == ("cluster", "east") else None for subject in subjects}
    plain = {"observed_at": at, "positions": 1, "scope": scope}
    return [
        {**plain, "subject": kind, "name": name, "complete": complete and why is None, "error": why}
        for (kind, name), why in whys.items()
    ]


class LakeBuilder:
    """A lake in a folder, to which each verb adds rows: `built.land("orders", 0, [0, 1, 4]).send([0, 1], 7)`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "lake"
        for file, content in _empty_lake().items():
            Path(self.root, file).parent.mkdir(parents=True)
            Path(self.root, file).write_bytes(content)

    def add(self, table: str, *rows: Mapping[str, Any], **columns: Any) -> LakeBuilder:
        """Add rows as they are, or one of some columns: of orders-0 of east, at noon, where it names no other."""
        plain = {name: value for name, value in _PLAIN.items() if name in TABLES[table].names}
        added = arrow(table, [{**plain, **columns}] if columns else rows)
        write_deltalake(self.location(table), added, mode="append")
        return self

    def turn(self, *several: list[Row]) -> LakeBuilder:
        """Land records of some partitions as one batch."""
        return self.add("relay", *(row for some in several for row in some))

    def land(self, topic: str, partition: int, offsets: Iterable[int], **columns: Any) -> LakeBuilder:
        return self.turn(rows(topic, partition, *offsets, **columns))

    def send(self, offsets: Sequence[int], downstream: int, **columns: Any) -> LakeBuilder:
        return self.add("offset_map", **map_row(offsets, downstream, **columns))

    def withhold(self, *offsets: int, **columns: Any) -> LakeBuilder:
        """Add what a rule withheld, by default of orders-0 of east."""
        row = map_row(offsets, 0, **{"kind": "filtered", "target_partition": None, "first_downstream": None, **columns})
        return self.add("offset_map", **row)

    def sample(self, at: datetime, *, complete: bool = True, error: str = "", **seen: Any) -> LakeBuilder:
        """Add a sample of all subjects and the positions that it saw (see `position_rows`)."""
        self.add("samples", *sample_rows(at, complete=complete, error=error))
        return self.add("positions", *position_rows(at, **seen))

    def position(self, kind: str, position: int, **columns: Any) -> LakeBuilder:
        return self.add("positions", kind=kind, position=position, **columns)

    def observe(self, topic: str, **columns: Any) -> LakeBuilder:
        """Add a topic as a cluster has it."""
        seen = {"cluster": "east", "role": "source", "kind": "topic", "topic": topic, "topic_id": topic, "configs": {}}
        return self.add("metadata", **{**seen, "partitions": 1, "present": True, **columns})

    def location(self, table: str) -> str:
        return f"{self.root}/{_folder(table)}"

    def mirror(self, spark: Any = None, **flow: Any) -> Mirror:
        """Open a mirror of a flow from east to central, whose clusters do not answer."""
        flows = [{"source": "east", "target": "central", "topics": ".*", **flow}]
        return load(write_conf(self.folder, dict.fromkeys(("east", "central"), "127.0.0.1:1"), flows), spark=spark)

    @cached_property
    def lake(self) -> Any:
        """Open the lake, for tests of what takes one; who asks it for Spark fails."""
        return self.mirror(spark=object()).lake


def _folder(table: str) -> str:
    return "relay/east" if table == "relay" else f"meta/{table}"


@cache
def _empty_lake() -> dict[str, bytes]:
    """Return the files of a lake without a row; a Delta log holds no absolute path."""
    with tempfile.TemporaryDirectory() as root:
        for name, schema in TABLES.items():
            config = {"delta.appendOnly": "false" if name in _REMOVABLE else "true"}
            config |= {"mirrorlake.lakeVersion": "4"} if name == "gaps" else {}
            DeltaTable.create(f"{root}/{_folder(name)}", schema, configuration=config, raise_if_key_not_exists=False)
        return {str(file.relative_to(root)): file.read_bytes() for file in Path(root).rglob("*.json")}


@pytest.fixture
def built(tmp_path: Path) -> LakeBuilder:
    return LakeBuilder(tmp_path)


@pytest.fixture
def lake(built: LakeBuilder) -> Any:
    return built.lake
