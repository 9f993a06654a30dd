"""The face of `mirrorlake.doctor`: what other rooms use of it; its modules are its own."""

from mirrorlake.doctor.checks import Findings as Findings
from mirrorlake.doctor.checks import examine as examine
from mirrorlake.doctor.trial import Tried as Tried
from mirrorlake.doctor.trial import group_names as group_names
from mirrorlake.doctor.trial import try_cluster as try_cluster
