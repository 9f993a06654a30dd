"""MirrorMaker 2: take over from it, and write the topics that its clients read."""

from mirrorlake.mm2.emit import mm2_duties
from mirrorlake.mm2.survey import OtherMirror
from mirrorlake.mm2.takeover import TakeoverPlan, apply_takeover, make_takeover_plan
