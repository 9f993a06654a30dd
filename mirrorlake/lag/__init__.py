"""Offset lag and time lag: positions over time, verdicts, forecasts, and the report of a day."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
