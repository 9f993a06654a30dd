"""Consumer groups: the position at which each one resumes, who moved it last, and the records of both."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
