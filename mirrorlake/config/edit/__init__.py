"""Edit settings: drafts, previews of a change, and saving the file."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
