"""Check settings, clusters and tables, and name the failing layer with its repair."""

from mirrorlake.doctor.examination import examine, list_checks
from mirrorlake.doctor.findings import Findings
from mirrorlake.doctor.trial import Tried, group_names, try_cluster
