"""The face of `mirrorlake.tracking`: what other rooms use of it; its modules are its own."""

from mirrorlake.tracking.run import FLOW as FLOW
from mirrorlake.tracking.run import TrackedRun as TrackedRun
from mirrorlake.tracking.run import html_page as html_page
from mirrorlake.tracking.run import json_report as json_report
from mirrorlake.tracking.run import runs_frame as runs_frame
from mirrorlake.tracking.tracker import Tracker as Tracker
from mirrorlake.tracking.tracker import default_uri as default_uri
from mirrorlake.tracking.tracker import lacking as lacking
from mirrorlake.tracking.tracker import make_tracker as make_tracker
