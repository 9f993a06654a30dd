"""The face of `mirrorlake.context`: what other rooms use of it; its modules are its own."""

from mirrorlake.context.context import Context as Context
from mirrorlake.context.context import utc_now as utc_now
