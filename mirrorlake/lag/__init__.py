"""Offset lag and time lag: positions over time, verdicts and forecasts."""

from mirrorlake.lag.figures import Figures, measure
from mirrorlake.lag.hanging_transactions import OpenTransaction, find_open_transactions
from mirrorlake.lag.hop_verdicts import HopVerdict
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.lag_page import LagPage
from mirrorlake.lag.monitor import Monitor
from mirrorlake.lag.partition_status import PartitionStatus, TopicStatus, format_proven, status_badge
from mirrorlake.lag.series import LINE_COLUMNS, lag_lines
from mirrorlake.lag.snapshot import PositionSnapshot
from mirrorlake.lag.status import FlowStatus, Status
from mirrorlake.lag.time_lag import combine_known, sum_lags
from mirrorlake.lag.unsent import find_unsent
from mirrorlake.lag.verdict import Verdict, verdict_label, worst_hop_verdict
