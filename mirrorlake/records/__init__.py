"""Single records: browse them, compare their copies, follow one from cluster to cluster, query them with SQL."""

from mirrorlake.face import attach

__getattr__, __dir__, __all__ = attach(__name__)
