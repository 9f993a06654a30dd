"""The public names of mirrorlake."""

from mirrorlake import errors as errors
from mirrorlake import sandbox as sandbox
from mirrorlake.config.mm2.importer import import_mm2 as import_mm2
from mirrorlake.doctor.examination import Finding as Finding
from mirrorlake.errors import MirrorlakeError as MirrorlakeError
from mirrorlake.mirror import Mirror as Mirror
from mirrorlake.mirror import from_settings as from_settings
from mirrorlake.mirror import load as load
from mirrorlake.mirror.flow import FlowHandle as FlowHandle
from mirrorlake.mirror.results import LandResult as LandResult
from mirrorlake.mirror.results import RepublishResult as RepublishResult
from mirrorlake.mm2.takeover import TakeoverPlan as TakeoverPlan
from mirrorlake.model.control import Pause as Pause
from mirrorlake.model.groups import GroupPlan as GroupPlan
from mirrorlake.model.loops.hops import Hop as Hop
from mirrorlake.model.loops.hops import hops as hops
from mirrorlake.model.offset_map import BeforeFirst as BeforeFirst
from mirrorlake.model.offset_map import DeletedTopic as DeletedTopic
from mirrorlake.model.offset_map import Exact as Exact
from mirrorlake.model.offset_map import Filtered as Filtered
from mirrorlake.model.offset_map import NoRecord as NoRecord
from mirrorlake.model.offset_map import NotYetRepublished as NotYetRepublished
from mirrorlake.model.offset_map import OtherGeneration as OtherGeneration
from mirrorlake.model.offset_map import Quarantined as Quarantined
from mirrorlake.model.offset_map import Translation as Translation
from mirrorlake.model.offset_map import UnknownPartition as UnknownPartition
from mirrorlake.model.plan import Change as Change
from mirrorlake.model.plan import Plan as Plan
from mirrorlake.model.policy import original_topic as original_topic
from mirrorlake.model.verify import VerifyReport as VerifyReport
from mirrorlake.notebook import charts as charts
from mirrorlake.notebook import show as show
from mirrorlake.notebook.params import params as params
from mirrorlake.notebook.start import console as console
from mirrorlake.notebook.start import setup as setup
from mirrorlake.rules.functions import rule_function as rule_function
from mirrorlake.status.status import FlowStatus as FlowStatus
from mirrorlake.status.status import PartitionStatus as PartitionStatus
from mirrorlake.status.status import Status as Status
from mirrorlake.topics.rules_plan import RuleTrial as RuleTrial

__version__: str
