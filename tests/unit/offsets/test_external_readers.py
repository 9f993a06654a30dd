"""Readers that keep their offsets outside of Kafka, without a broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.lake import METADATA
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.groups import Resume
from mirrorlake.offsets import external_readers
from tests.builders import NOON, mirror_config
from tests.lakes import lake_in


@pytest.mark.law("A")
def test_law_a_offsets_of_a_file_are_of_the_life_that_the_source_holds_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_in(tmp_path, METADATA)
    cuts = [{"partition": 0, "generation": 2, "first_offset": 120}]
    topic = {"cluster": "east", "role": "source", "kind": "topic", "topic": "orders", "generation": 1, "topic_id": "x"}
    more = {"partitions": 1, "configs": {}, "present": True, "observed_at": NOON, "cuts": cuts}
    lake.append_rows(METADATA, [topic | more])
    asked: list[SourcePartition] = []

    def resume(_lake: Any, _related: Any, readers: Any, _clusters: Any) -> dict[Any, Resume]:
        asked.extend(source for _, source in readers["east->central"])
        return {}

    monkeypatch.setattr(external_readers, "resume_readers", resume)
    flow = mirror_config({"target": "central"}).flows[0]
    clusters: Any = SimpleNamespace(config=SimpleNamespace(flows=()))
    for offset in (119, 120):
        external_readers.move_positions(lake, flow, {"orders": {"0": offset}}, clusters)
    assert [source.generation for source in asked] == [1, 2]
