"""Provenance of a record: one header for each hop, appended at the end.

    key     mirrorlake.hop
    value   <source alias>/<topic>/<partition>/<upstream offset>, UTF-8

The first hop names the cluster that the record was produced on, the last one the cluster it came from. A record
without such a header was produced on its own cluster. Aliases and topic names contain no `/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

HOP_KEY = "mirrorlake.hop"
HOP_PATTERN = (
    r"(?P<alias>[A-Za-z0-9_-]+)/(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>[0-9]{1,10})/(?P<offset>[0-9]{1,19})"
)
_HOP = re.compile(HOP_PATTERN)


class Hop(NamedTuple):
    """A cluster, topic, partition and offset that a record was read from."""

    source: str
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.source}/{self.topic}/{self.partition}/{self.offset}"


def hops(headers: Iterable[tuple[str, bytes | str | None]] | None) -> list[Hop]:
    """Return the hops of a record, from its origin on; [] if it was produced on the cluster it was read from.

    Args:
        headers: pairs of key and value, from `Message.headers()` of confluent-kafka or from a row of the relay. Other
            headers, and values that mirrorlake did not write, do not count.

    Example:
        >>> hops([("trace", b"1"), ("mirrorlake.hop", b"east/orders/0/17"), ("mirrorlake.hop", b"west/orders/0/4")])
        [Hop(source='east', topic='orders', partition=0, offset=17), Hop(source='west', topic='orders', partition=0, offset=4)]
    """
    found = []
    for key, value in headers or ():
        if key != HOP_KEY or value is None:
            continue
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if match := _HOP.fullmatch(text):
            alias, topic, partition, offset = match.groups()
            found.append(Hop(alias, topic, int(partition), int(offset)))
    return found
