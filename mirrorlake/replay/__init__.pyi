"""The face of `mirrorlake.replay`: what other rooms use of it; its modules are its own."""

from mirrorlake.replay.asking import Asked as Asked
from mirrorlake.replay.asking import Leave as Leave
from mirrorlake.replay.asking import header_of as header_of
from mirrorlake.replay.define import Site as Site
from mirrorlake.replay.flows import flow_of as flow_of
from mirrorlake.replay.register import EXPORT as EXPORT
from mirrorlake.replay.register import Register as Register
from mirrorlake.replay.replay import Replay as Replay
from mirrorlake.replay.replay import compare as compare
from mirrorlake.replay.replays import found as found
from mirrorlake.replay.replays import plan_again as plan_again
from mirrorlake.replay.replays import plan_here as plan_here
from mirrorlake.replay.replays import plan_replay as plan_replay
from mirrorlake.replay.restore import Restore as Restore
from mirrorlake.replay.restore import restore_topics as restore_topics
