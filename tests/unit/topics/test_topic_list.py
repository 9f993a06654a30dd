"""The list of topics: what each flow does with a topic, and where remote topics come from."""

from __future__ import annotations

from mirrorlake.config import loads
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.topics import TopicList, list_topics

CONFIG = loads("""
lake: {root: ./lake}
clusters:
  east: {bootstrap_servers: "e:1", never_leave: "pii.*"}
  west: {bootstrap_servers: "w:1"}
  central: {bootstrap_servers: "c:1"}
flows:
  - {source: east, target: central, topics: "orders, pii.*, tmp.*", exclude_topics: "tmp.*"}
  - {source: west, target: central, topics: ".*", policy: {template: "all.{topic}"}}
""")


def topics_of(
    alias: str, *names: str, upstream: dict[str, list[str]] | None = None, internal: bool = False
) -> TopicList:
    def names_of(source: str) -> list[str]:
        if upstream is None or source not in upstream:
            raise ClusterUnreachable(f"{source} does not answer")
        return upstream[source]

    return list_topics(alias, dict.fromkeys(names, 1), flows=CONFIG.flows, names_of=names_of, internal=internal)


def test_each_topic_says_where_it_is_mirrored_or_why_not() -> None:
    names = ["orders", "pii-names", "tmp.x", "clicks", "__consumer_offsets"]
    found = topics_of("east", *names)
    assert {line.topic: line.mirrored for line in found} == {
        "orders": "central: east.orders",
        "pii-names": "east->central: never_leave keeps it on its cluster",
        "tmp.x": "east->central: exclude_topics excludes it",
        "clicks": "east->central: no pattern of the flow matches",
    }
    assert (found.hidden, [line.topic for line in found if line.is_mirrored]) == (1, ["orders"])
    assert len(topics_of("east", *names, internal=True)) == 5


def test_a_remote_topic_names_its_flow_also_where_only_the_source_can_tell() -> None:
    names = ["all.clicks", "east.orders", "own"]
    found = topics_of("central", *names, upstream={"east": ["orders"], "west": ["clicks"]})
    assert {line.topic: line.mirrored for line in found} == {
        "east.orders": "remote topic of east->central, from east: orders",
        "all.clicks": "remote topic of west->central, from west: clicks",
        "own": "no flow reads this cluster",
    }
    away = topics_of("central", *names)
    assert [line.topic for line in away if line.mirrored.startswith("remote topic")] == ["east.orders"], "names tell it"
