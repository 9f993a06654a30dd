"""One text for a question: delta-rs with DuckDB, and Spark, give the same answers on the same tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.lake import PositionKey
from mirrorlake.lake.arrow_types import arrow_table
from mirrorlake.lake.audit import Audit
from mirrorlake.lake.control import Control
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.fates import quarantine_sql, withheld_sql
from mirrorlake.lake.incarnations import read_incarnations
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landing_state import accounted_positions, landed_positions, summarize_landed_after
from mirrorlake.lake.metadata import SourceTopics, newest_acls, newest_topics
from mirrorlake.lake.proofs import proven_ranges, proven_until
from mirrorlake.lake.samples import load_last_samples
from mirrorlake.lake.schema import (
    AUDIT,
    CHECKPOINTS,
    GAPS,
    METADATA,
    OFFSET_MAP,
    POSITIONS,
    PROOFS,
    RELAY,
    SAMPLES,
    SIDE_TABLES,
    TableSchema,
)
from mirrorlake.model.acls import Acl
from mirrorlake.model.control import Subject
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.offsets.group_positions import newest_checkpoints, newest_positions, read_histories
from mirrorlake.offsets.maps import OffsetMaps
from mirrorlake.offsets.neighbours import ReadPast, count_read_again, find_neighbours
from mirrorlake.offsets.position_check import PositionChecker
from mirrorlake.offsets.translate import translate_back, translate_offset
from mirrorlake.republish.ledger_tables import LedgerCopy
from mirrorlake.republish.quarantine import find_waiting
from mirrorlake.status.ages import Ages, WaitPosition
from tests.builders import READ

FLOW = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "t"})
AB = FlowConfig.model_validate(
    {"name": "a->b", "source": "east", "target": "central", "topics": "t", "policy": {"template": "a.{topic}"}}
)

AT = datetime(2026, 11, 22, 9, 30, 0, 123_457, tzinfo=timezone.utc)
# Statistics hold the first 32 letters of a text.
LONG = "orders-of-a-region-whose-name-takes-more-than-the-first-32-letters-"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, LakeConfig(root=str(tmp_path_factory.mktemp("engines") / "lake")))
    lake.create_all(["east"])
    for version, rows in enumerate(_RELAY):
        lake.append_frame(
            spark.createDataFrame(arrow_table(RELAY, named(RELAY, rows))).coalesce(1),
            lake.relay_location("east"),
            signature=f'{{"version": {version}}}',
        )
    for table in SIDE_TABLES:
        rows = named(table, _ROWS.get(table.name, []))
        for version, half in enumerate((rows[::2], rows[1::2])):
            lake.append(table, half, app_id="mirrorlake.ledger.a->b", version=version)
    offsets = Path(lake.checkpoint_root()) / "q" / "offsets"
    offsets.mkdir(parents=True)
    for name in ("0", "1", ".1.crc", "2.tmp"):
        (offsets / name).write_text(f"v1\n{{}}\n{name}")
    Control(lake, now=lambda: AT).append("pause", Subject(kind="flow", name="a->b"), reason="why not")
    return lake


@pytest.fixture(scope="module")
def through_spark(lake: Lake) -> Lake:
    """The same tables, asked as they are on a catalog or a distributed file system."""
    other = Lake(lake.spark, LakeConfig(root=str(Path(lake.checkpoint_root()).parent)))
    other._has_folder = False
    return other


def test_both_engines_create_the_same_table(lake: Lake, tmp_path: Path) -> None:
    """The relay of a new lake is delta-rs' where the session is our own, Spark's where a host gave it."""
    place = str(tmp_path / "relay")
    FolderTables().create(place, RELAY)
    ours, sparks = DeltaTable(place), DeltaTable(lake.relay_location("east"), version=0)

    def told(table: DeltaTable) -> list[Any]:
        metadata, protocol = table.metadata(), table.protocol()
        return [
            json.loads(table.schema().to_json()),
            *(metadata.configuration, metadata.description, metadata.partition_columns),
            *(protocol.min_reader_version, protocol.min_writer_version, protocol.writer_features),
        ]

    assert told(ours) == told(sparks)


def named(table: TableSchema, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in rows]


def _stretch(first: int, length: int) -> dict[str, int]:
    return {"first": first, "length": length}


def _relay(topic: str, partition: int, first: int, count: int, at: datetime) -> list[tuple[Any, ...]]:
    return [
        (
            topic,
            1,
            partition,
            first + n,
            AT,
            0,
            b"k",
            b"\0\0\0\0\7v" if n % 2 else b"v",
            [{"key": "h", "value": None}, {"key": "h", "value": b""}] if n else None,
            at,
        )
        for n in range(count)
    ]


TICK = timedelta(microseconds=1)
_RELAY = [
    _relay(f"{LONG}a", 0, 0, 5, AT),
    # A lander whose clock was set back: the next batch is a microsecond later, in the same millisecond.
    _relay(f"{LONG}a", 0, 5, 5, AT + TICK),
    [*_relay(f"{LONG}a", 0, 10, 3, AT + 2 * TICK), *_relay(f"{LONG}b", 1, 0, 4, AT + 2 * TICK)],
]
_ACL = READ.as_dict()
_GONE = {**_ACL, "principal": "User:b"}
_CUT = {"partition": 0, "generation": 2, "first_offset": 150}
_HOLES = [_stretch(3, 2), _stretch(9, 1)]
_ROWS: dict[str, list[tuple[Any, ...]]] = {
    OFFSET_MAP.name: [
        ("a->b", "t", 1, 0, 0, 9, _HOLES, "sent", "a.t", 0, 0, 7, 0, seq, epoch, AT, None, "id1", None, None, None)
        for seq, epoch in ((1, 10), (2, 11), (3, 2**40))
    ]
    + [
        ("a->b", topic, 1, 0, first, first + 2, [_stretch(first + 1, 1)], kind, f"a.{topic}", None, None, 2, lane, seq, 11, AT,
         None, "id1", "r", "1", why)
        for topic, first, kind, lane, seq, why in (
            ("t", 3, "filtered", 1, 7, ""),
            (f"{LONG}a", 7, "filtered", 1, 7, ""),
            (f"{LONG}a", 4, "quarantined", 0, 5, "why"),
        )
    ],
    POSITIONS.name: [
        ("east", None, LONG + name, 1, 0, "landed", None, position, None, AT + TICK * position, AT + TICK, *[None] * 4)
        for name in "ab"
        for position in (3, 5)
    ]
    + [("east", "a->b", "t", 1, 0, "taken_over", None, 4, AT, AT, None, "a.t", None, None, None)]
    + [("east", "a->b", "t", 1, 0, "group_set", "h", 2, None, AT, *[None] * 5)]
    + [
        ("east", None, "t", 1, 0, "group", group, position, None, AT + TICK * (position or 9), None, None, True, AT, "OK")
        for group in ("g", "h")
        for position in (1, 2, None)
    ],
    SAMPLES.name: [
        (AT, "cluster", "east", True, "mine", 1, 1, 3, None),
        (AT + TICK, "cluster", "east", False, "mine", 1, 1, 3, None),
        (AT + 2 * TICK, "cluster", "east", False, "mine", 1, 1, 3, "no answer"),
    ],
    CHECKPOINTS.name: [("a->b", "g", "a.t", 0, at, at - 1, "", AT + TICK * at) for at in (3, 5)],
    GAPS.name: [("east", "t", 1, 0, 3, 4, 2, "transactional", AT)],
    PROOFS.name: [
        ("v1", "source-relay", "east", None, "t", 1, 0, 0, 9, 0, "full",
         None, None, None, None, 8, "d", None, 3, "id1", None, AT, 10, None),
        ("v1", "relay-target", "east", "a->b", "t", 1, 0, 0, 4, 0, "full",
         "a.t", 0, 0, 3, 4, "d", None, 3, "id1", "id9", AT, 5, 7),
        ("v2", "relay-target", "east", "a->b", "t", 1, 0, 5, 7, 0, "gone",
         "a.t", None, None, None, 0, None, "v", 4, "id1", "id9", AT, 9, None),
        ("v2", "relay-target", "east", "a->b", "t", 1, 0, 9, 9, 0, "full",
         "a.t", 0, 8, 8, 1, "d", None, 4, "id1", "id9", AT + TICK, None, None),
    ],
    METADATA.name: [
        ("east", "source", "topic", "t", 1, "id1", 2, {"cleanup.policy": "compact"}, None, True, AT, None, None),
        ("east", "source", "topic", "t", 1, "id1", 3, {}, None, True, AT + TICK, [_CUT], {0: 4, 1: 5}),
        ("central", "target", "topic", "a.t", 1, "id8", 2, {}, None, True, AT, None, None),
        ("central", "target", "topic", "a.t", 2, "id9", 2, {}, None, True, AT + TICK, None, None),
        ("central", None, "acl", None, None, None, None, None, _ACL, True, AT, None, None),
        ("central", None, "acl", None, None, None, None, None, _ACL, False, AT + TICK, None, None),
        ("central", None, "acl", None, None, None, None, None, _ACL, True, AT + 2 * TICK, None, None),
        ("central", None, "acl", None, None, None, None, None, _GONE, True, AT, None, None),
        ("central", None, "acl", None, None, None, None, None, _GONE, False, AT + TICK, None, None),
    ],
    AUDIT.name: [(AT, "me@here", "plan", "hash", "central", None, "topic a.t", "create", "null", '{"configs": {}}')],
}  # fmt: skip

_STANDINGS = ((7, 13), (13, 20))

QUESTIONS: dict[str, Callable[[Lake], Any]] = {
    "tables": lambda lake: [lake.exists(lake.meta_location(table)) for table in SIDE_TABLES],
    "versions": lambda lake: [lake.version(lake.meta_location(table)) for table in SIDE_TABLES],
    "sizes": lambda lake: [lake.size(lake.relay_location("east")), lake.size(lake.meta_location(POSITIONS))],
    "properties": lambda lake: lake.properties(lake.relay_location("east")).items() >= RELAY.properties.items(),
    "next version": lambda lake: [lake.has_version(lake.relay_location("east"), n) for n in (3, 4)],
    "commits": lambda lake: list(lake.commits(lake.relay_location("east"), since=0)),
    "topics": lambda lake: SourceTopics(lake, "east").load(),
    "topics of a target": lambda lake: newest_topics(lake, "central", "target"),
    "ACLs": lambda lake: newest_acls(lake, "central"),
    "lives": lambda lake: read_incarnations(lake, [FLOW]),
    "positions": lambda lake: accounted_positions(lake, "east"),
    "landed": lambda lake: landed_positions(lake, "east"),
    "since a batch": lambda lake: _sorted(summarize_landed_after(lake, "east", {}, AT + TICK)),
    "of one batch": lambda lake: _sorted(summarize_landed_after(lake, "east", {}, AT, AT + TICK)),
    "past positions": lambda lake: _sorted(
        summarize_landed_after(
            lake, "east", {SourcePartition(LONG + "a", 1, 0): 10, SourcePartition(LONG + "b", 1, 1): 4}, None
        )
    ),
    "ledger copies": lambda lake: (copy := LedgerCopy(lake, AB)).load() | {-1: copy.copied_epoch},
    "positions of a flow": lambda lake: LedgerCopy(lake, AB).positions(),
    "remote topics of a flow": lambda lake: LedgerCopy(lake, AB).remotes(),
    "takeover": lambda lake: [
        LedgerCopy(lake, AB.model_copy(update={"name": name})).has_takeover() for name in ("a->b", "b->a")
    ],
    "a translation": lambda lake: [
        translate_offset(lake, AB, topic="t", partition=0, offset=offset) for offset in (2, 3, 40)
    ],
    "a translation back": lambda lake: [
        translate_back(lake, AB, topic="a.t", partition=0, offset=offset) for offset in (6, 90)
    ],
    "groups": lambda lake: newest_positions(lake, "east"),
    "checkpoints": lambda lake: newest_checkpoints(lake, "a->b"),
    "around positions": lambda lake: find_neighbours(
        _maps(lake), "a->b", [(SourcePartition("t", 1, 0), at) for at in (0, 4, 10, 12, 40)]
    ),
    "read again": lambda lake: count_read_again(
        _maps(lake), "a->b", [ReadPast(SourcePartition("t", 1, 0), 8, TopicPartition("a.t", 0), 2)]
    ),
    "all runs": lambda lake: _sorted(_maps(lake).ask("SELECT * FROM {runs}")),
    "all that was withheld": lambda lake: _sorted(_maps(lake).ask("SELECT * FROM {fates} WHERE kind <> 'sent'")),
    "the view withheld": lambda lake: _sorted(lake.query(withheld_sql("{offset_map}"))),
    "the view quarantine": lambda lake: _sorted(_quarantined(lake)),
    "what waits in quarantine": lambda lake: find_waiting(lake, AB),
    "what stands between": lambda lake: PositionChecker(
        _maps(lake),
        AB.model_copy(update={"source": "east"}),
        {(SourcePartition(f"{LONG}a", 1, 0), 11): 0, (SourcePartition("t", 1, 0), 5): None},
        None,
    )._read_landed(),
    "landing begun": lambda lake: PositionChecker(_maps(lake), AB, {}, None)._landing_begun(),
    "commits of groups": lambda lake: read_histories(lake, ["east"], ["g", "h"]),
    "what was seen": lambda lake: (found := load_last_samples(lake, "mine")).standings | {("", ""): found.completed_at},
    "a checkpoint location": lambda lake: lake.texts(f"{lake.checkpoint_root()}/q/offsets"),
    "no checkpoint location": lambda lake: lake.texts(f"{lake.checkpoint_root()}/none/offsets"),
    "what waits": lambda lake: [
        Ages(lake, "east").find(
            {PositionKey("east", "a->b", LONG + "a", 1, 0, "republished", None): WaitPosition("a->b", source, offset)},
            landed={source: 13},
            ends={source: end},
            readers=_away,
        )
        for source in [SourcePartition(LONG + "a", 1, 0)]
        for offset, end in _STANDINGS
    ],
    "proven": lambda lake: [sorted(map(repr, proven_ranges(lake, AB))), proven_until(lake, AB)],
    "audit": lambda lake: Audit(lake, now=lambda: AT).entries("central", "topic"),
    "control": lambda lake: Control(lake, now=lambda: AT).state(),
    **{
        f"rows of {table.name}": lambda lake, table=table: _sorted(lake.query(f"SELECT * FROM {{{table.name}}}"))  # noqa: S608
        for table in SIDE_TABLES
    },
}


def _away(alias: str) -> Any:
    raise ClusterUnreachable(f"{alias} is away")


def _maps(lake: Lake) -> OffsetMaps:
    """The offset map as it stood at the second record of the ledger, and a newer run."""
    newer = {
        **named(OFFSET_MAP, [_ROWS[OFFSET_MAP.name][0]])[0],
        "first_upstream": 10,
        "last_upstream": 11,
        "first_downstream": 7,
        "record_count": 2,
        "holes": [],
    }
    return OffsetMaps(
        lake=lake,
        positions={"a->b": {SourcePartition(f"{LONG}a", 1, 0): 6}},
        copied={("a->b", 0): 2, ("a->b", 1): 7},
        sources={"a->b": "east"},
        newer=(newer,),
        current="NOT (target_topic = 'gone')",
    )


def _quarantined(lake: Lake) -> list[Any]:
    return lake.query(quarantine_sql("{offset_map}", {"east": "{relay}"}, {"a->b": "east"}), relay="east")


def _sorted(rows: list[Any]) -> list[str]:
    return sorted(repr(sorted(vars(row).items())).replace("<UTC>", "").lower() for row in rows)


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_engines_answer_alike(lake: Lake, through_spark: Lake, question: str) -> None:
    answer = QUESTIONS[question](lake)
    assert answer == QUESTIONS[question](through_spark)


def test_the_answers_are_right(lake: Lake) -> None:
    assert landed_positions(lake, "east").reached == {
        SourcePartition(f"{LONG}a", 1, 0): 13,
        SourcePartition(f"{LONG}b", 1, 0): 5,
        SourcePartition(f"{LONG}b", 1, 1): 4,
    }
    [span] = summarize_landed_after(lake, "east", {}, AT, AT + TICK)
    assert (span.first, span.last, span.records) == (5, 9, 5), "statistics cut both batches to one millisecond"
    assert sorted(row.offset for row in _quarantined(lake)) == [4, 6], "not the offset between them"
    copy = LedgerCopy(lake, AB)
    assert newest_acls(lake, "central") == {Acl(**_ACL)}, "an ACL that was deleted and made again"
    assert newest_topics(lake, "central", "target")["a.t"].topic_id == "id9"
    assert (copy.load(), copy.copied_epoch) == ({0: 5, 1: 7}, 11), "an epoch that a mad clock made does not count"


@pytest.mark.law("F")
def test_law_f_an_older_version_of_an_application_is_dropped_whoever_wrote_the_newer(
    lake: Lake, through_spark: Lake
) -> None:
    """Delta protocol, SetTransaction: each engine sees the transactions of the other."""
    first, second = FolderTables(), FolderTables()
    place, rows = lake.meta_location(GAPS), arrow_table(GAPS, named(GAPS, _ROWS[GAPS.name]))

    def count() -> int:
        return lake.meta(GAPS).count()

    before = count()
    for table in (first, second):
        # Both hold the table as it is now, before either writes.
        assert table.version(place) == lake.version(place)
    first.append(place, rows, app_id="owner", version=5)
    second.append(place, rows, app_id="owner", version=5)
    second.append(place, rows, app_id="owner", version=4)
    through_spark.append(GAPS, named(GAPS, _ROWS[GAPS.name]), app_id="owner", version=5)
    assert count() == before + 1, "law F: told twice"
    through_spark.fence(GAPS, app_id="owner", version=7)
    first.append(place, rows, app_id="owner", version=6)
    assert count() == before + 1, "law F: a fenced owner has written"
    first.append(place, pa.table(rows).slice(0, 0), app_id="owner", version=9)
    through_spark.append(GAPS, named(GAPS, _ROWS[GAPS.name]), app_id="owner", version=8)
    assert count() == before + 1, "law F: a fenced owner has written"


def test_a_row_that_names_another_tables_column_is_refused(lake: Lake) -> None:
    with pytest.raises(ValueError, match="audit has no column partition"):
        lake.append(AUDIT, [{"who": "me", "partition": 1}])


def test_two_writers_of_one_table_lose_nothing(lake: Lake) -> None:
    from concurrent.futures import ThreadPoolExecutor

    place, rows = lake.meta_location(AUDIT), arrow_table(AUDIT, named(AUDIT, _ROWS[AUDIT.name]))
    before = lake.meta(AUDIT).count()
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(lambda tables: [tables.append(place, rows) for _ in range(5)], [FolderTables() for _ in range(4)])
        )
    assert lake.meta(AUDIT).count() == before + 20
