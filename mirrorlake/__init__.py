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
    from mirrorlake import show as show
    from mirrorlake.config.mm2_import import import_mm2 as import_mm2
    from mirrorlake.errors import MirrorlakeError as MirrorlakeError
    from mirrorlake.handles import FlowHandle as FlowHandle
    from mirrorlake.mirror import Mirror as Mirror
    from mirrorlake.mirror import from_settings as from_settings
    from mirrorlake.mirror import load as load
    from mirrorlake.model.hops import Hop as Hop
    from mirrorlake.model.hops import hops as hops
    from mirrorlake.model.offset_map import BeforeFirst as BeforeFirst
    from mirrorlake.model.offset_map import Exact as Exact
    from mirrorlake.model.offset_map import Filtered as Filtered
    from mirrorlake.model.offset_map import InHole as InHole
    from mirrorlake.model.offset_map import NotYetRepublished as NotYetRepublished
    from mirrorlake.model.offset_map import OtherGeneration as OtherGeneration
    from mirrorlake.model.offset_map import Quarantined as Quarantined
    from mirrorlake.model.offset_map import UnknownPartition as UnknownPartition
    from mirrorlake.model.plan import Change as Change
    from mirrorlake.model.plan import Plan as Plan
    from mirrorlake.model.policy import original_topic as original_topic
    from mirrorlake.rules.functions import register as register

__version__ = "0.1.0"

# Loaded at first use: importing the package starts nothing and stays below 0.3 s.
_HOME = {
    "BeforeFirst": "mirrorlake.model.offset_map",
    "Change": "mirrorlake.model.plan",
    "Exact": "mirrorlake.model.offset_map",
    "Filtered": "mirrorlake.model.offset_map",
    "FlowHandle": "mirrorlake.handles",
    "Hop": "mirrorlake.model.hops",
    "InHole": "mirrorlake.model.offset_map",
    "Mirror": "mirrorlake.mirror",
    "MirrorlakeError": "mirrorlake.errors",
    "NotYetRepublished": "mirrorlake.model.offset_map",
    "OtherGeneration": "mirrorlake.model.offset_map",
    "Plan": "mirrorlake.model.plan",
    "Quarantined": "mirrorlake.model.offset_map",
    "UnknownPartition": "mirrorlake.model.offset_map",
    "errors": "",
    "from_settings": "mirrorlake.mirror",
    "hops": "mirrorlake.model.hops",
    "import_mm2": "mirrorlake.config.mm2_import",
    "load": "mirrorlake.mirror",
    "register": "mirrorlake.rules.functions",
    "original_topic": "mirrorlake.model.policy",
    "sandbox": "",
    "show": "",
}

__all__ = [
    "BeforeFirst",
    "Change",
    "Exact",
    "Filtered",
    "FlowHandle",
    "Hop",
    "InHole",
    "Mirror",
    "MirrorlakeError",
    "NotYetRepublished",
    "OtherGeneration",
    "Plan",
    "Quarantined",
    "UnknownPartition",
    "__version__",
    "errors",
    "from_settings",
    "hops",
    "import_mm2",
    "load",
    "original_topic",
    "register",
    "sandbox",
    "show",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mirrorlake' has no attribute '{name}'")
    home = _HOME[name]
    value = getattr(import_module(home), name) if home else import_module(f"mirrorlake.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
