"""The face of `mirrorlake.groups`: what other rooms use of it; its modules are its own."""

from mirrorlake.groups.plan import GroupSync as GroupSync
from mirrorlake.groups.plan import apply_groups as apply_groups
