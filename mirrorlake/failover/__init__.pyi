"""The face of `mirrorlake.failover`: what other rooms use of it; its modules are its own."""

from mirrorlake.failover.cutover import CutoverReport as CutoverReport
from mirrorlake.failover.drill import DrillReport as DrillReport
from mirrorlake.failover.drills import list_drills as list_drills
from mirrorlake.failover.drills import run_drill as run_drill
from mirrorlake.failover.drills import run_drills as run_drills
from mirrorlake.failover.failback_report import FailbackReport as FailbackReport
from mirrorlake.failover.operations import cut_over as cut_over
from mirrorlake.failover.operations import fail_back as fail_back
from mirrorlake.failover.operations import fail_over as fail_over
from mirrorlake.failover.report import FailoverReport as FailoverReport
from mirrorlake.failover.return_flows import derive_return_flow as derive_return_flow
