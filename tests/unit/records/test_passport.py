"""Passports of a lake in a folder, without Spark: every offset has a word from each side, also where a target is away (law E)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mirrorlake.errors import ClusterError
from mirrorlake.lake import GAPS, METADATA, OFFSET_MAP, POSITIONS, SIDE_TABLES, FolderTables, write_files
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.records import Registry
from tests.builders import map_row, mirror_config, run
from tests.lakes import SCHEMA, Relay, batch, lake_in, rows

AT = datetime(2026, 11, 22, 3, tzinfo=timezone.utc)
ORDERS = TopicPartition("orders", 0)
REMOTE = TopicPartition("east.orders", 0)


class Away:
    """Clusters that do not answer: what the lake knows is all there is."""

    def __init__(self, root: Path) -> None:
        self.config = mirror_config({"target": "central"}, lake={"root": str(root)})

    def admin(self, alias: str) -> NoReturn:
        raise ClusterError(f"{alias} does not answer", alias=alias)


def row(first: int, last: int, downstream: int, *, generation: int = 1) -> dict[str, Any]:
    sent = run(first, last, downstream, source=SourcePartition("orders", generation, 0))
    return map_row(sent, flow="east->central", lane=3, ledger_seq=17, epoch=1, committed_at=AT)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Two lives of a topic in the relay: of the first 0 and 1, of the second 0, 2, 3, 4 and 5."""
    clusters: Any = Away(tmp_path)
    lake = lake_in(tmp_path, *SIDE_TABLES)
    relay = Relay(lake.relay_location("east"))
    relay.land(rows("orders", 0, 0, 1))
    relay.land(rows("orders", 0, 0, 2, 3, 4, 5, generation=2))
    place = {"topic": "orders", "generation": 2, "partition": 0}
    lake.append_rows(GAPS, [{"source": "east", **place, "first_offset": 1, "last_offset": 1, "kind": "compacted"}])
    lake.append_rows(OFFSET_MAP, [row(0, 1, 100), row(0, 0, 102, generation=2), row(4, 4, 103, generation=2)])
    return Registry(lake, clusters)


def test_law_e_an_older_life_a_gap_and_the_way_back(registry: Registry) -> None:
    older = registry.passport("east", ORDERS, 1)
    assert older.source == SourcePartition("orders", 1, 0), "the newest life that holds a record there"
    assert [one.offset for one in older.outcomes] == [101]
    [waiting] = registry.passport("east", ORDERS, 5).outcomes
    assert waiting.words == "not yet republished, as far as the lake knows: central does not answer"
    gap = registry.passport("east", ORDERS, 1, generation=2)
    assert gap.missing is not None
    assert gap.missing.kind == "compacted"
    back = registry.passport("central", REMOTE, 101)
    assert (back.cluster, back.source, back.offset) == ("east", SourcePartition("orders", 1, 0), 1)
    nobody = registry.passport("central", TopicPartition("east.order", 0), 9)
    assert nobody.source is None
    assert nobody.words.endswith("did you mean 'east.orders'?")


def test_what_an_earlier_selection_took_and_what_was_taken_over(registry: Registry) -> None:
    lake = registry.lake
    taken = {"source": "east", "flow": "east->central", "topic": "orders", "generation": 2, "partition": 0}
    at = {"target_topic": "east.orders", "observed_at": AT}
    lake.append_rows(POSITIONS, [taken | at | {"kind": "taken_over", "position": 6}])
    [outcome] = registry.passport("east", ORDERS, 5).outcomes
    assert "before the place where the flow took over" in outcome.words
    landed = batch(rows("clicks", 0, 7))
    files = list(write_files(lake.relay_location("east"), SCHEMA, iter([landed])))
    FolderTables().commit(lake.relay_location("east"), files, app_id="land", version=3, signature="")
    [left_out] = registry.passport("east", TopicPartition("clicks", 0), 7).outcomes
    assert left_out.status == "not_carried"


@pytest.mark.law("E")
def test_law_e_what_stood_in_a_remote_topic_that_was_deleted_says_so(registry: Registry) -> None:
    topic = {"cluster": "central", "role": "target", "kind": "topic", "topic": "east.orders", "generation": 1}
    topic |= {"partitions": 1, "configs": {}, "present": True}
    since = AT + timedelta(hours=1)
    registry.lake.append_rows(
        METADATA,
        [topic | {"topic_id": "old", "observed_at": AT}, topic | {"topic_id": "new", "observed_at": since}],
    )
    [outcome] = registry.passport("east", ORDERS, 4).outcomes
    assert outcome.status == "in_a_deleted_topic"
    assert registry.passport("central", REMOTE, 103).source is None, "another record may stand there now"
