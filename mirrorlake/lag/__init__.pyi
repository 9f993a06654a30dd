"""The face of `mirrorlake.lag`: what other rooms use of it; its modules are its own."""

from mirrorlake.lag.figures import Figures as Figures
from mirrorlake.lag.figures import measure as measure
from mirrorlake.lag.hop_verdicts import HopVerdict as HopVerdict
from mirrorlake.lag.lag import Lag as Lag
from mirrorlake.lag.log_bytes import read_offset_bytes as read_offset_bytes
from mirrorlake.lag.monitor import Monitor as Monitor
from mirrorlake.lag.others import SIGN_TIMEOUT as SIGN_TIMEOUT
from mirrorlake.lag.others import count_waiting as count_waiting
from mirrorlake.lag.others import other_flows as other_flows
from mirrorlake.lag.partition_status import PartitionStatus as PartitionStatus
from mirrorlake.lag.partition_status import TopicStatus as TopicStatus
from mirrorlake.lag.partition_status import format_proven as format_proven
from mirrorlake.lag.partition_status import status_badge as status_badge
from mirrorlake.lag.report import Report as Report
from mirrorlake.lag.sampler import PositionSnapshot as PositionSnapshot
from mirrorlake.lag.series import LINE_COLUMNS as LINE_COLUMNS
from mirrorlake.lag.series import lag_lines as lag_lines
from mirrorlake.lag.status import FlowStatus as FlowStatus
from mirrorlake.lag.status import Status as Status
from mirrorlake.lag.time_lag import Total as Total
from mirrorlake.lag.time_lag import combine_known as combine_known
from mirrorlake.lag.time_lag import sum_lags as sum_lags
from mirrorlake.lag.verdict import Verdict as Verdict
from mirrorlake.lag.verdict import worst_hop_verdict as worst_hop_verdict
