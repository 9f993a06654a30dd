"""Browse records, follow a record from cluster to cluster, query records with SQL."""

from mirrorlake.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
