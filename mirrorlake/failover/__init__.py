"""Fail over to a target, fail back, cut over for good, and rehearse it: steps in `audit` that go on where they were killed."""

from mirrorlake.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
