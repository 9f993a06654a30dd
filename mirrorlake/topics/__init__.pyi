"""The face of `mirrorlake.topics`: what other rooms use of it; its modules are its own."""

from mirrorlake.topics import settings_in_force as settings_in_force
from mirrorlake.topics.browser import ClusterTopics as ClusterTopics
from mirrorlake.topics.browser import TopicBrowser as TopicBrowser
from mirrorlake.topics.continuous_sync import ContinuousSync as ContinuousSync
from mirrorlake.topics.edits import SETTINGS as SETTINGS
from mirrorlake.topics.group_refusal import refused as refused
from mirrorlake.topics.history import History as History
from mirrorlake.topics.history import aware as aware
from mirrorlake.topics.permissions import needed_acls as needed_acls
from mirrorlake.topics.remote_topics import RemoteTopics as RemoteTopics
from mirrorlake.topics.remote_topics import target_of as target_of
from mirrorlake.topics.remote_topics import wanted_remote_topic as wanted_remote_topic
from mirrorlake.topics.rules_plan import RulesShown as RulesShown
from mirrorlake.topics.rules_plan import RuleTrial as RuleTrial
from mirrorlake.topics.rules_plan import list_rules as list_rules
from mirrorlake.topics.rules_plan import rule_changes as rule_changes
from mirrorlake.topics.rules_plan import try_rules as try_rules
from mirrorlake.topics.setup import apply_plan as apply_plan
from mirrorlake.topics.setup import carry_out as carry_out
from mirrorlake.topics.setup import make_plan as make_plan
from mirrorlake.topics.sources import LakeTopics as LakeTopics
from mirrorlake.topics.sources import TopicSource as TopicSource
from mirrorlake.topics.topic_list import TopicLine as TopicLine
from mirrorlake.topics.topic_list import TopicList as TopicList
from mirrorlake.topics.topic_list import TopicPage as TopicPage
from mirrorlake.topics.topic_plan import require_source as require_source
