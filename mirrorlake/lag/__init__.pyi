"""The face of `mirrorlake.lag`: what other rooms use of it; its modules are its own."""

from mirrorlake.lag.figures import Figures as Figures
from mirrorlake.lag.figures import measure as measure
from mirrorlake.lag.hop_verdicts import HopVerdict as HopVerdict
from mirrorlake.lag.lag import Lag as Lag
from mirrorlake.lag.log_bytes import offset_bytes_of as offset_bytes_of
from mirrorlake.lag.moment import Total as Total
from mirrorlake.lag.moment import all_known as all_known
from mirrorlake.lag.moment import total as total
from mirrorlake.lag.monitor import Monitor as Monitor
from mirrorlake.lag.others import SIGN_TIMEOUT as SIGN_TIMEOUT
from mirrorlake.lag.others import count_waiting as count_waiting
from mirrorlake.lag.others import other_flows as other_flows
from mirrorlake.lag.report import Report as Report
from mirrorlake.lag.sampler import SampledMoment as SampledMoment
from mirrorlake.lag.series import LINE_COLUMNS as LINE_COLUMNS
from mirrorlake.lag.series import lag_lines as lag_lines
from mirrorlake.lag.standing import PartitionStatus as PartitionStatus
from mirrorlake.lag.standing import TopicStatus as TopicStatus
from mirrorlake.lag.standing import proven_words as proven_words
from mirrorlake.lag.standing import standing_badge as standing_badge
from mirrorlake.lag.status import FlowStatus as FlowStatus
from mirrorlake.lag.status import Status as Status
from mirrorlake.lag.verdict import Verdict as Verdict
from mirrorlake.lag.verdict import worst as worst
