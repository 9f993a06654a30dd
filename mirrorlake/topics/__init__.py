"""Plan, create and sync the topics of the targets: partitions, settings, ACLs."""

from mirrorlake.topics import settings_in_force
from mirrorlake.topics.acl_ownership import INTENDED
from mirrorlake.topics.continuous_sync import ContinuousSync
from mirrorlake.topics.edits import SETTINGS
from mirrorlake.topics.filled_topics import FilledTopics
from mirrorlake.topics.remote_topics import RemoteTopics, target_of, wanted_remote_topic
from mirrorlake.topics.rules_plan import RulesShown, RuleTrial, list_rules, rule_changes, try_rules
from mirrorlake.topics.setup import apply_plan, carry_out, make_plan, refused
from mirrorlake.topics.sources import LakeTopics, TopicSource
from mirrorlake.topics.topic_list import TopicList, list_topics, partition_counts
from mirrorlake.topics.topic_plan import require_source
