from mirrorlake.replay.register import Register as Register
from mirrorlake.replay.replay import Replay as Replay
from mirrorlake.replay.replay import find_flow as find_flow
from mirrorlake.replay.replay import is_replay as is_replay
from mirrorlake.replay.replay import make_replay as make_replay
from mirrorlake.replay.replay import verify_replay as verify_replay
from mirrorlake.replay.request import ReplayConsent as ReplayConsent
from mirrorlake.replay.request import parse_header as parse_header
