from mirrorlake.mm2.emit import mm2_duties as mm2_duties
from mirrorlake.mm2.survey import OtherMirror as OtherMirror
from mirrorlake.mm2.takeover import TakeoverPlan as TakeoverPlan
from mirrorlake.mm2.takeover import apply_takeover as apply_takeover
from mirrorlake.mm2.takeover import make_takeover_plan as make_takeover_plan
