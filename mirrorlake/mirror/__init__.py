"""The facade and the runner: one `Mirror` a settings file, its flows, and the supervision of their streams."""

from mirrorlake.context import utc_now
from mirrorlake.mirror.loading import from_settings, load
from mirrorlake.mirror.mirror import Mirror

__all__ = ["Mirror", "Ran", "from_settings", "load", "utc_now"]
