"""Status, lag and verdicts of a mirror, now and over time; its events; and the metrics that it serves while it runs."""

from mirrorlake.status.ages import OpenTransaction, find_open_transactions
from mirrorlake.status.events import Event, EventFeed, Events, read_events
from mirrorlake.status.history import Lag
from mirrorlake.status.hops import hop_name
from mirrorlake.status.metrics import serving_metrics
from mirrorlake.status.monitor import Monitor
from mirrorlake.status.snapshot import PositionSnapshot
from mirrorlake.status.status import FlowStatus, PartitionStatus, Status, to_timedelta
from mirrorlake.status.verdict import Verdict
