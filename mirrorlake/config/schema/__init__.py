"""The settings file as typed values: clusters, lake, flows and their settings."""

from mirrorlake.config.schema.background import MaintenanceConfig
from mirrorlake.config.schema.cluster import ClusterConfig
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.config.schema.lake_cluster import topic_fault
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.config.schema.placement import Placement
from mirrorlake.config.schema.registry import RegistryConfig
from mirrorlake.config.schema.retention import RetentionConfig
from mirrorlake.config.schema.rules import HIDING, RuleConfig, keeping
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.config.schema.tables import TableConfig
from mirrorlake.config.schema.tracking import without_user
