"""Plan, create and sync the topics of the targets: partitions, settings, ACLs, history."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
