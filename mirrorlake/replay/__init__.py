"""Replay records of a relay into any topic, exactly once."""

from mirrorlake.replay.register import Register
from mirrorlake.replay.replay import Replay, find_flow, is_replay, make_replay, verify_replay
from mirrorlake.replay.request import ReplayConsent, parse_header
