"""Floor 2: the only importer of confluent_kafka.

Client options, admin, groups, watermarks, the lane producer and the ledger.
"""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
