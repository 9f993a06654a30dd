"""The face of `mirrorlake.config.schema`: what other rooms use of it; its modules are its own."""

from mirrorlake.config.schema.background import MaintenanceConfig as MaintenanceConfig
from mirrorlake.config.schema.cluster import ClusterConfig as ClusterConfig
from mirrorlake.config.schema.flow import FlowConfig as FlowConfig
from mirrorlake.config.schema.lake import LakeConfig as LakeConfig
from mirrorlake.config.schema.lake_cluster import topic_fault as topic_fault
from mirrorlake.config.schema.mirror import MirrorConfig as MirrorConfig
from mirrorlake.config.schema.placement import Placement as Placement
from mirrorlake.config.schema.retention import RetentionConfig as RetentionConfig
from mirrorlake.config.schema.route import Route as Route
from mirrorlake.config.schema.rules import HIDING as HIDING
from mirrorlake.config.schema.rules import RuleConfig as RuleConfig
from mirrorlake.config.schema.rules import keeping as keeping
from mirrorlake.config.schema.selection import NameMatcher as NameMatcher
from mirrorlake.config.schema.tracking import without_user as without_user
