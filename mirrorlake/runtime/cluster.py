"""Detect Spark clusters, and build the error of one without free slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlake.errors import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTERS = ("spark://", "k8s://", "yarn", "local-cluster")
PAGE = "docs/clusters.md"


def is_cluster(spark: SparkSession) -> bool:
    """Return whether tasks run in separate executors: not in a local session, nor on a platform that manages its workers."""
    return (spark.conf.get("spark.master", "") or "").startswith(_MASTERS)


def no_slots_error(what: str) -> StoreError:
    return StoreError(
        f"Spark's cluster has too few free slots: {what}",
        consequence="records landed and sent so far are safe",
        remedy=f"give it more cores, fewer lanes, or a smaller spark.mirrorlake.liveSlots ({PAGE})",
    )
