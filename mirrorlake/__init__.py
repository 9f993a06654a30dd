"""Mirror Kafka topics between clusters through Delta Lake, exactly once, with an exact offset map.

import mirrorlake as ml

mirror = ml.load("conf/demo.yml")
mirror.plan()
mirror.run(once=True)
mirror["east->central"].verify()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrorlake import errors as errors
    from mirrorlake import sandbox as sandbox
    from mirrorlake.config.mm2.importer import import_mm2 as import_mm2
    from mirrorlake.doctor.checks import Finding as Finding
    from mirrorlake.errors import MirrorlakeError as MirrorlakeError
    from mirrorlake.lag.status import FlowStatus as FlowStatus
    from mirrorlake.lag.status import PartitionStatus as PartitionStatus
    from mirrorlake.lag.status import Status as Status
    from mirrorlake.mirror import Mirror as Mirror
    from mirrorlake.mirror import from_settings as from_settings
    from mirrorlake.mirror import load as load
    from mirrorlake.mirror.flow import FlowHandle as FlowHandle
    from mirrorlake.mirror.results import Landing as Landing
    from mirrorlake.mirror.results import Republishing as Republishing
    from mirrorlake.mm2.takeover import TakeoverPlan as TakeoverPlan
    from mirrorlake.model.control import Pause as Pause
    from mirrorlake.model.groups import GroupPlan as GroupPlan
    from mirrorlake.model.history import HistoryChange as HistoryChange
    from mirrorlake.model.history import HistoryState as HistoryState
    from mirrorlake.model.loops.hops import Hop as Hop
    from mirrorlake.model.loops.hops import hops as hops
    from mirrorlake.model.offset_map import BeforeFirst as BeforeFirst
    from mirrorlake.model.offset_map import DeletedTopic as DeletedTopic
    from mirrorlake.model.offset_map import Exact as Exact
    from mirrorlake.model.offset_map import Filtered as Filtered
    from mirrorlake.model.offset_map import InHole as InHole
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
    from mirrorlake.notebook.console import console as console
    from mirrorlake.notebook.params import params as params
    from mirrorlake.offsets.rebuild import RebuildPlan as RebuildPlan
    from mirrorlake.rules.functions import rule_function as rule_function
    from mirrorlake.topics.rules_plan import RuleTrial as RuleTrial

__version__ = "0.1.0"

# The public names, sorted, with the modules that hold them; loaded at first use: importing the package starts nothing
# and stays below 0.3 s.
_HOME = {
    "BeforeFirst": "mirrorlake.model.offset_map",
    "Change": "mirrorlake.model.plan",
    "DeletedTopic": "mirrorlake.model.offset_map",
    "Exact": "mirrorlake.model.offset_map",
    "Filtered": "mirrorlake.model.offset_map",
    "Finding": "mirrorlake.doctor.checks",
    "FlowHandle": "mirrorlake.mirror.flow",
    "FlowStatus": "mirrorlake.lag.status",
    "GroupPlan": "mirrorlake.model.groups",
    "HistoryChange": "mirrorlake.model.history",
    "HistoryState": "mirrorlake.model.history",
    "Hop": "mirrorlake.model.loops.hops",
    "InHole": "mirrorlake.model.offset_map",
    "Landing": "mirrorlake.mirror.results",
    "Mirror": "mirrorlake.mirror",
    "MirrorlakeError": "mirrorlake.errors",
    "NotYetRepublished": "mirrorlake.model.offset_map",
    "OtherGeneration": "mirrorlake.model.offset_map",
    "PartitionStatus": "mirrorlake.lag.status",
    "Pause": "mirrorlake.model.control",
    "Plan": "mirrorlake.model.plan",
    "Quarantined": "mirrorlake.model.offset_map",
    "RebuildPlan": "mirrorlake.offsets.rebuild",
    "Republishing": "mirrorlake.mirror.results",
    "RuleTrial": "mirrorlake.topics.rules_plan",
    "Status": "mirrorlake.lag.status",
    "TakeoverPlan": "mirrorlake.mm2.takeover",
    "Translation": "mirrorlake.model.offset_map",
    "UnknownPartition": "mirrorlake.model.offset_map",
    "VerifyReport": "mirrorlake.model.verify",
    "__version__": "",
    "charts": "mirrorlake.notebook",
    "console": "mirrorlake.notebook.console",
    "errors": "",
    "from_settings": "mirrorlake.mirror",
    "hops": "mirrorlake.model.loops.hops",
    "import_mm2": "mirrorlake.config.mm2.importer",
    "load": "mirrorlake.mirror",
    "original_topic": "mirrorlake.model.policy",
    "params": "mirrorlake.notebook.params",
    "rule_function": "mirrorlake.rules.functions",
    "sandbox": "",
    "show": "mirrorlake.notebook",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mirrorlake' has no attribute '{name}'")
    home = _HOME[name]
    value = getattr(import_module(home), name) if home else import_module(f"mirrorlake.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
