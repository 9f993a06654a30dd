"""How far landing has read: past what the relay holds where control records stand at the end of a partition."""

from __future__ import annotations

from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landed import kafka_positions, read_checkpoint_location
from mirrorlake.lake.one_writer import CHECKPOINT_PROPERTY
from mirrorlake.model.flow import TopicPartition


def land_checkpoint_path(lake: Lake, alias: str, number: int) -> str:
    """Return the checkpoint location of a source's landing query."""
    return f"{lake.checkpoint_root()}/land/{alias}/{number}"


def read_to(lake: Lake, alias: str) -> dict[TopicPartition, int]:
    """Return the next offset that landing will read of each partition; past the control records at its end."""
    location = lake.relay_location(alias)
    if not lake.exists(location):
        return {}
    number = int(lake.properties(location).get(CHECKPOINT_PROPERTY, "0"))
    known = read_checkpoint_location(lake, land_checkpoint_path(lake, alias, number))
    return kafka_positions(known.committed)


def standing(*, holds: int | None, seen: int, end: int, sent: int) -> tuple[int, int]:
    """Compute how far a source partition is landed and how far republished, both as next offsets.

    Control records at its end are read but never landed: the checkpoint location knows that they were. `holds` is the offset
    after the last that the relay holds, None for nothing; `seen` the next one to read by the checkpoint location; `end` the
    source's; `sent` the next one to republish by the flow's ledger.

    Example:
        >>> standing(holds=7, seen=9, end=9, sent=7)
        (9, 9)
        >>> standing(holds=7, seen=9, end=9, sent=4)
        (9, 4)
    """
    held = holds or 0
    reached = min(max(held, seen), max(end, held))
    return reached, reached if holds is not None and sent >= held else sent
