"""Ranges of offsets."""

from mirrorlake.model.ranges import UNBOUNDED, OffsetRange
from mirrorlake.model.ranges import Ranges as OffsetRanges

__all__ = ["UNBOUNDED", "OffsetRange", "OffsetRanges"]
