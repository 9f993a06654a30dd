"""The face of `mirrorlake.failover`: what other rooms use of it; its modules are its own."""

from mirrorlake.failover.cutover import Cutover as Cutover
from mirrorlake.failover.cutover import CutoverReport as CutoverReport
from mirrorlake.failover.desk import Desk as Desk
from mirrorlake.failover.desk import Seam as Seam
from mirrorlake.failover.desk import carried as carried
from mirrorlake.failover.drill import DrillReport as DrillReport
from mirrorlake.failover.drill import LagWatch as LagWatch
from mirrorlake.failover.drill import LiveLag as LiveLag
from mirrorlake.failover.drill import drill_run as drill_run
from mirrorlake.failover.drill import seen as seen
from mirrorlake.failover.drill import typical as typical
from mirrorlake.failover.failback import Failback as Failback
from mirrorlake.failover.failback_report import TAIL_CHOICES as TAIL_CHOICES
from mirrorlake.failover.failback_report import FailbackReport as FailbackReport
from mirrorlake.failover.failover import Failover as Failover
from mirrorlake.failover.failover import FailoverOptions as FailoverOptions
from mirrorlake.failover.fence import FENCES as FENCES
from mirrorlake.failover.journal import DONE as DONE
from mirrorlake.failover.journal import DRILL as DRILL
from mirrorlake.failover.journal import Journal as Journal
from mirrorlake.failover.report import FailoverReport as FailoverReport
from mirrorlake.failover.way_home import local_topics as local_topics
from mirrorlake.failover.way_home import made_way_home as made_way_home
