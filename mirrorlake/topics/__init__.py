"""Topics on the targets and what belongs to them: plan, apply, settings, ACLs, continuous sync, history."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
