"""The context of every operation of one mirror: settings, lake, cluster clients, session, clock and progress."""

from mirrorlake.context.context import Context, utc_now
