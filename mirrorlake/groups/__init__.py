"""Consumer groups: the position at which each one resumes, who moved it last, and the records of both."""

from mirrorlake.groups.plan import GroupSync, apply_groups
