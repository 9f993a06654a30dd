"""The offset map: translate a position, resume a reader, move consumer groups."""

from mirrorlake.offsets import external_readers, translate
from mirrorlake.offsets.external_readers import MovedPositions
from mirrorlake.offsets.groups import GroupSync, apply_groups
from mirrorlake.offsets.maps import (
    OffsetMaps,
    RelatedFlows,
    load_offset_maps,
    stable_ends,
    to_mapped_range,
    with_redrives,
)
from mirrorlake.offsets.translate import translate_back
