"""The lane of a flow that carries a source partition."""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from mirrorlake.model.flow import SourcePartition


def lane_of(topic: str, partition: int, *, lanes: int) -> int:
    """Return the lane, `0 <= lane < lanes`, that carries `partition` of `topic`.

    The partitions of one topic are dealt in turn: 8 on 2 lanes are 4 and 4, which a hash would not guarantee.
    """
    if lanes < 1:
        raise ValueError(f"lanes must be at least 1, not {lanes}")
    return (crc32(topic.encode()) + partition) % lanes


def of_lane(positions: Mapping[SourcePartition, int], lane: int, *, lanes: int) -> dict[SourcePartition, int]:
    return {
        source: at for source, at in positions.items() if lane_of(source.topic, source.partition, lanes=lanes) == lane
    }
