"""The facade and the runner: one `Mirror` a settings file, its flows, and what keeps their streams running."""

from mirrorlake.mirror.mirror import Mirror, from_settings, load
from mirrorlake.mirror.results import Ran
from mirrorlake.mirror.services.connections import utc_now

__all__ = ["Mirror", "Ran", "from_settings", "load", "utc_now"]
