"""Fail over to a target, fail back, cut over for good, and rehearse it: steps in `audit` that go on where they were killed."""

from mirrorlake.failover.cutover import CutoverReport, cut_over
from mirrorlake.failover.drill import DrillReport, list_drills, run_drill
from mirrorlake.failover.failback import fail_back
from mirrorlake.failover.failback_report import FailbackReport
from mirrorlake.failover.failover import fail_over
from mirrorlake.failover.report import FailoverReport
