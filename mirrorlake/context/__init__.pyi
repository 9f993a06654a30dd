"""The interface of `mirrorlake.context` for other packages; its modules are internal."""

from mirrorlake.context.context import Context as Context
from mirrorlake.context.context import utc_now as utc_now
