"""Look-ups of downstream offsets find the runs on both sides, however far they are, without Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import METADATA, OFFSET_MAP, SIDE_TABLES, read_tombstones, write_tombstones
from mirrorlake.lake.schema import TOMBSTONES
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import NoRecord, Translation, UnknownPartition, standing_at
from mirrorlake.offsets import translate_back
from mirrorlake.offsets.translate import _NEAR
from tests.builders import map_row, run
from tests.lakes import lake_in

FLOW = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "t"})
# Other writers of the target have filled what lies between the runs.
STARTS = (10, 25, 30 + 2 * _NEAR, 50 + 5 * _NEAR)


def test_law_b_a_look_back_says_what_all_runs_say(tmp_path: Path) -> None:
    lake = lake_in(tmp_path, *SIDE_TABLES, relays=["east"])
    runs = [run(n * 10, n * 10 + 9, start, source=SourcePartition("t", 1, 0)) for n, start in enumerate(STARTS)]
    lake.append_rows(OFFSET_MAP, [map_row(each, flow=FLOW.name) for each in runs])
    edges = [start + step for start in STARTS for step in (-1, 0, 9, 10)]
    for offset in [0, *edges, _NEAR, 4 * _NEAR, 9 * _NEAR]:
        found = translate_back(lake, FLOW, topic="east.t", partition=0, offset=offset)
        assert found == standing_at(runs, offset), offset
    assert translate_back(lake, FLOW, topic="east.u", partition=0, offset=1) == standing_at([], 1)


@pytest.mark.law("E")
def test_law_e_a_tombstone_of_an_erasure_answers_erased_with_the_reason(tmp_path: Path) -> None:
    lake = lake_in(tmp_path, *(table for table in SIDE_TABLES if table is not TOMBSTONES), relays=["east"])
    place = TopicPartition("east.t", 0)

    def asked(offset: int, partition: int = 0) -> Translation:
        return translate_back(lake, FLOW, topic="east.t", partition=partition, offset=offset)

    assert asked(7) == UnknownPartition(), "a lake of an older release has no such table"
    at = datetime(2026, 11, 22, tzinfo=timezone.utc)
    write_tombstones(
        lake, "central", {place: [5, 7, 8]}, removal="r", flow=FLOW.name, reason="request 4711", ids={}, at=at
    )
    assert asked(7) == NoRecord(None, "erased", "request 4711")
    assert "erased: request 4711" in str(asked(7))
    assert [asked(6), asked(7, partition=1)] == [UnknownPartition()] * 2
    assert sum(one.records for one in read_tombstones(lake, "central")) == 3
    lives = [("x1", at), ("x2", at + timedelta(hours=1))]
    lake.append_rows(METADATA, [_seen(topic_id, seen_at) for topic_id, seen_at in lives])
    assert asked(7) == UnknownPartition(), "it stood in an earlier life of the topic"
    write_tombstones(
        lake, "central", {place: [7]}, removal="s", flow=FLOW.name, reason="now", ids={"east.t": "x2"}, at=at
    )
    assert asked(7) == NoRecord(None, "erased", "now")


def _seen(topic_id: str, at: datetime) -> dict[str, Any]:
    return {
        "cluster": "central", "role": "target", "kind": "topic", "topic": "east.t", "topic_id": topic_id, "present": True,
        "observed_at": at,
    }  # fmt: skip
