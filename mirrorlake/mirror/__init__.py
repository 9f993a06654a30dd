"""The facade and the runner: one `Mirror` a settings file, its flows, and what keeps their streams running."""

from mirrorlake.context import utc_now
from mirrorlake.mirror.mirror import Mirror, from_settings, load
from mirrorlake.mirror.results import Ran

__all__ = ["Mirror", "Ran", "from_settings", "load", "utc_now"]
