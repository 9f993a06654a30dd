"""Same-key conflicts of the regions that mirror one topic to each other."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake.lake import Lake
from mirrorlake.records.conflict_rows import same_key_conflicts


def conflicts(lake: Lake, flows: Iterable[FlowConfig], topic: str, *, within: timedelta) -> DataFrame:
    """Return the pairs of records with one key that two sources of the topic wrote within a time.

    Raises:
        UsageError: fewer than two sources of the flows carry the topic.
    """
    sources = sorted({flow.source for flow in flows if flow.carries(topic)})
    if len(sources) < 2:
        raise UsageError(
            f"{topic} is carried from {', '.join(sources) or 'no source'}; a conflict takes two",
            remedy="name a topic that flows of two sources carry",
            topic=topic,
        )
    lake.create_all(sources)
    relays = {alias: lake.relay(alias).where(F.col("topic") == topic) for alias in sources}
    return same_key_conflicts(relays, within=within)
