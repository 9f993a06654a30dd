"""Consumer groups: where each one would go on, who moved it last, and what is written down of both."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
