"""Offset lag and time lag: positions over time, verdicts, forecasts, and the report of a day."""
