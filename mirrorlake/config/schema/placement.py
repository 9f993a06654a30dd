"""Place records on target partitions: by their partition number, by key, or by a map.

    placement: keep                         the partition number on the source
    placement: {by: key, count: 12}         the partition of Kafka's default partitioner, in a topic of 12 partitions
    placement: {map: {0: 3, 1: 0}}          source partition 0 to 3, 1 to 0; also by topics: {map: {"orders.*": {0: 3}}}

A source partition that a map omits is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mirrorlake.config import values
from mirrorlake.config.faults import SettingsFault, below, did_you_mean, fault_error, raise_any
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.model.patterns import parse_patterns

# Kafka has no limit; a typing error must not create more partitions than a cluster can handle.
MAX_PARTITIONS = 100_000
_REMEDY = "write keep, {by: key, count: 12} or {map: {0: 3, 1: 0}}"
_PAIR_REMEDY = "write {map: {0: 3, 1: 0}}: source partition, then target partition"


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of a flow's records on target partitions, as written.

    Law D: `keep` and `map` preserve the order of each source partition, `key` the order of each key.

    Attributes:
        kind: keep, key or map.
        count: partitions of the remote topic; None unless kind is key.
        maps: (topics, pairs of source and target partition) in the order of the file; topics `.*` if none are named.
    """

    kind: Literal["keep", "key", "map"] = "keep"
    count: int | None = None
    maps: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()

    def plain(self) -> str | dict[str, Any]:
        """Return the placement in the syntax of a settings file."""
        if self.kind == "key":
            return {"by": "key", "count": self.count}
        if self.kind == "map":
            return {"map": {topics: dict(pairs) for topics, pairs in self.maps}}
        return self.kind

    def mapping(self, topic: str) -> Mapping[int, int] | None:
        """Return target partitions by source partition, or None without a map for the topic."""
        found = None
        for topics, pairs in self.maps:
            if NameMatcher(parse_patterns(topics)).matches(topic):
                found = dict(pairs)
        return found

    def remote_partitions(self, topic: str, partitions: int) -> int:
        """Return the partition count that the remote topic of a source topic with `partitions` needs.

        >>> Placement("map", maps=((".*", ((0, 3), (1, 0))),)).remote_partitions("orders", 2)
        4
        """
        if self.count is not None:
            return self.count
        mapping = self.mapping(topic)
        return partitions if mapping is None else max(mapping.values()) + 1

    def unmapped(self, topic: str, partitions: int) -> list[int]:
        """Return the source partitions of a topic that its map omits."""
        mapping = self.mapping(topic)
        return [] if mapping is None else [p for p in range(partitions) if p not in mapping]

    def targets(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the possible target partitions of a source partition's records."""
        if self.count is not None:
            return tuple(range(self.count))
        mapping = self.mapping(topic)
        if mapping is None:
            return (partition,)
        return (mapping[partition],) if partition in mapping else ()


def read_placement(value: Any) -> Placement:
    """Parse a placement: `keep`, `{by: key, count: N}` or `{map: {0: 3, ...}}`."""
    if isinstance(value, Placement):
        return value
    if value == "keep":
        return Placement()
    if isinstance(value, Mapping) and "map" in value and len(value) == 1:
        with below("map"):
            return Placement("map", maps=_maps(value["map"]))
    if isinstance(value, Mapping) and "by" in value:
        return _by_key(value)
    if isinstance(value, str):
        raise fault_error(f"'{value}' is not a placement", f"{did_you_mean(value, ['keep', 'key', 'map'])}; {_REMEDY}")
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
    if not _is_partition(count) or count == 0:
        what = "'count' is missing" if count is None else "'count' is not a number of partitions"
        findings.append(SettingsFault(("count",), what, f"write the remote topic's partitions, 1 to {MAX_PARTITIONS}"))
    raise_any(findings)
    return Placement("key", count=count)


def _maps(value: Any) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    if not isinstance(value, Mapping) or not value:
        raise fault_error("a mapping is expected", _PAIR_REMEDY)
    nested = [isinstance(target, Mapping) for target in value.values()]
    if any(nested) and not all(nested):
        raise fault_error("topics and partitions are mixed in one mapping", _PAIR_REMEDY)
    by_topics = values.by_pattern(value, _PAIR_REMEDY) if all(nested) else {".*": value}
    findings, maps = [], []
    for topics, pairs in by_topics.items():
        place = (topics,) if all(nested) else ()
        if not pairs:
            findings.append(SettingsFault(place, "it is empty", _PAIR_REMEDY))
        found = {values.whole(source): values.whole(target) for source, target in pairs.items()}
        findings += [
            SettingsFault((*place, str(source)), f"{source}: {target} are not two partitions", _PAIR_REMEDY)
            for source, target in found.items()
            if not _is_partition(source) or not _is_partition(target)
        ]
        maps.append((topics, tuple(found.items())))
    raise_any(findings)
    return tuple((topics, tuple(sorted(pairs))) for topics, pairs in maps)


def _is_partition(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_PARTITIONS
