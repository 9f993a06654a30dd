"""The face of `mirrorlake.failover`: what other rooms use of it; its modules are its own."""

from mirrorlake.failover.desk import Desk as Desk
from mirrorlake.failover.desk import Seam as Seam
from mirrorlake.failover.failover import Failover as Failover
from mirrorlake.failover.failover import FailoverOptions as FailoverOptions
from mirrorlake.failover.fence import FENCES as FENCES
from mirrorlake.failover.journal import Journal as Journal
from mirrorlake.failover.report import FailoverReport as FailoverReport
