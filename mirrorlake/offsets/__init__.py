"""The offset map: translate a position, resume a reader, move consumer groups."""

from mirrorlake.offsets import external_readers, translate
from mirrorlake.offsets.external_readers import MovedPositions
from mirrorlake.offsets.groups import GroupSync, apply_groups
from mirrorlake.offsets.neighbours import to_mapped_range
from mirrorlake.offsets.offset_maps import OffsetMaps, load_offset_maps
from mirrorlake.offsets.resume import resume_readers
from mirrorlake.offsets.shared_partitions import Positions, PositionsByFlow, RelatedFlows, related_flows, stable_ends
from mirrorlake.offsets.translate import translate_back
