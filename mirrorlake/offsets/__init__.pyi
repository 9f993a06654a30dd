"""The interface of `mirrorlake.offsets` for other packages; its modules are internal."""

from mirrorlake.offsets import external_readers as external_readers
from mirrorlake.offsets import translate as translate
from mirrorlake.offsets.external_readers import MovedPositions as MovedPositions
from mirrorlake.offsets.mesh import find_routes as find_routes
from mirrorlake.offsets.neighbours import to_mapped_range as to_mapped_range
from mirrorlake.offsets.offset_maps import OffsetMaps as OffsetMaps
from mirrorlake.offsets.offset_maps import load_offset_maps as load_offset_maps
from mirrorlake.offsets.rebuild import RebuildPlan as RebuildPlan
from mirrorlake.offsets.rebuild import apply_rebuild as apply_rebuild
from mirrorlake.offsets.rebuild import make_rebuild_plan as make_rebuild_plan
from mirrorlake.offsets.resume import resume_readers as resume_readers
from mirrorlake.offsets.shared_partitions import Positions as Positions
from mirrorlake.offsets.shared_partitions import PositionsByFlow as PositionsByFlow
from mirrorlake.offsets.shared_partitions import RelatedFlows as RelatedFlows
from mirrorlake.offsets.shared_partitions import related_flows as related_flows
from mirrorlake.offsets.shared_partitions import stable_ends as stable_ends
from mirrorlake.offsets.translate import translate_back as translate_back
from mirrorlake.offsets.translate import translate_table as translate_table
