"""Change settings: drafts, a preview of what a change means, and the file it is saved to."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
