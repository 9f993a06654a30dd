"""Relay to target: fencing, lanes, the follower of the relay's log, the copies of the ledger, quarantine."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
