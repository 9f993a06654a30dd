"""Check settings, clusters and tables, and name the failing layer with its repair."""

# These two register their checks.
import mirrorlake.doctor.machine_checks
import mirrorlake.doctor.topic_checks
from mirrorlake.doctor.examination import Findings, examine, list_checks
from mirrorlake.doctor.trial import Tried, try_cluster
