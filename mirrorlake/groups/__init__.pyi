"""The interface of `mirrorlake.groups` for other packages; its modules are internal."""

from mirrorlake.groups.plan import GroupSync as GroupSync
from mirrorlake.groups.plan import apply_groups as apply_groups
