"""The face of `mirrorlake.doctor`: what other rooms use of it; its modules are its own."""

from mirrorlake.doctor.examination import examine as examine
from mirrorlake.doctor.examination import list_checks as list_checks
from mirrorlake.doctor.findings import Findings as Findings
from mirrorlake.doctor.trial import Tried as Tried
from mirrorlake.doctor.trial import group_names as group_names
from mirrorlake.doctor.trial import try_cluster as try_cluster
