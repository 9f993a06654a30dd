"""Place records on target partitions: by their partition number or by key.

placement: keep                         the partition number on the source
placement: {by: key, count: 12}         the partition of Kafka's default partitioner, in a topic of 12 partitions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mirrorlake.config import values
from mirrorlake.config.faults import SettingsFault, did_you_mean, fault_error, raise_any

# Kafka has no limit; a typing error must not create more partitions than a cluster can handle.
MAX_PARTITIONS = 100_000
_REMEDY = "write keep or {by: key, count: 12}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of a flow's records on target partitions, as written.

    Law D: `keep` preserves the order of each source partition, `key` the order of each key.

    Attributes:
        kind: keep or key.
        count: partitions of the remote topic; None unless kind is key.
    """

    kind: Literal["keep", "key"] = "keep"
    count: int | None = None

    def plain(self) -> str | dict[str, Any]:
        """Return the placement in the syntax of a settings file."""
        return {"by": "key", "count": self.count} if self.kind == "key" else self.kind

    def remote_partitions(self, partitions: int) -> int:
        """Return the partition count that the remote topic of a source topic with `partitions` needs."""
        return partitions if self.count is None else self.count

    def targets(self, partition: int) -> tuple[int, ...]:
        """Return the possible target partitions of a source partition's records."""
        return (partition,) if self.count is None else tuple(range(self.count))


def read_placement(value: Any) -> Placement:
    """Parse a placement: `keep` or `{by: key, count: N}`."""
    if isinstance(value, Placement):
        return value
    if value == "keep":
        return Placement()
    if isinstance(value, Mapping) and "by" in value:
        return _by_key(value)
    if isinstance(value, str):
        raise fault_error(f"'{value}' is not a placement", f"{did_you_mean(value, ['keep', 'key'])}; {_REMEDY}")
    raise fault_error("this is not a placement", _REMEDY)


def _by_key(value: Mapping[Any, Any]) -> Placement:
    findings = []
    if value["by"] != "key":
        findings.append(SettingsFault(("by",), f"records cannot be placed by '{value['by']}'", "write key"))
    findings += [
        SettingsFault((key,), f"unknown key '{key}'", did_you_mean(str(key), ["by", "count"]))
        for key in value
        if key not in ("by", "count")
    ]
    count = values.whole(value.get("count"))
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MAX_PARTITIONS:
        what = "'count' is missing" if count is None else "'count' is not a number of partitions"
        findings.append(SettingsFault(("count",), what, f"write the remote topic's partitions, 1 to {MAX_PARTITIONS}"))
    raise_any(findings)
    return Placement("key", count=count)
