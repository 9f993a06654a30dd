"""Look-ups of downstream offsets find the runs on both sides, however far they are, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.mirror import LakeConfig
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import OFFSET_MAP, RELAY, SIDE_TABLES
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.offset_map import Run, standing_at
from mirrorlake.offsets.translate import _NEAR, translate_back

FLOW = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "t"})
# Other writers of the target have filled what lies between the runs.
STARTS = (10, 25, 30 + 2 * _NEAR, 50 + 5 * _NEAR)


def no_session() -> Any:
    raise AssertionError("a look-up in a folder needs no Spark")


def test_law_b_a_look_back_says_what_all_runs_say(tmp_path: Path) -> None:
    lake = Lake(no_session, LakeConfig(root=str(tmp_path)))
    lake._folder.create(lake.relay_location("east"), RELAY)
    for table in SIDE_TABLES:
        lake._folder.create(lake.meta_location(table), table)
    runs = [
        Run(
            source=SourcePartition("t", 1, 0),
            target=TopicPartition("east.t", 0),
            first_upstream=n * 10,
            last_upstream=n * 10 + 9,
            first_downstream=start,
            count=10,
        )
        for n, start in enumerate(STARTS)
    ]
    lake.append_rows(
        OFFSET_MAP,
        [
            {
                "flow": FLOW.name,
                "source_topic": "t",
                "generation": 1,
                "source_partition": 0,
                "first_upstream": run.first_upstream,
                "last_upstream": run.last_upstream,
                "holes": [],
                "target_topic": "east.t",
                "target_partition": 0,
                "first_downstream": run.first_downstream,
                "record_count": 10,
            }
            for run in runs
        ],
    )
    edges = [start + step for start in STARTS for step in (-1, 0, 9, 10)]
    for offset in [0, *edges, _NEAR, 4 * _NEAR, 9 * _NEAR]:
        found = translate_back(lake, FLOW, topic="east.t", partition=0, offset=offset)
        assert found == standing_at(runs, offset), offset
    assert translate_back(lake, FLOW, topic="east.u", partition=0, offset=1) == standing_at([], 1)
