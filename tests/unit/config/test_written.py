"""Settings written as a person would write them: the round trip, the order, and no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.edit.yaml_writer import written
from mirrorlake.config.load import load, loads
from mirrorlake.config.schema.mirror import MirrorConfig

CONF = Path(__file__).parents[3] / "conf"
ENDS = {"east": {"bootstrap_servers": "e:9092"}, "west": {"bootstrap_servers": "w:9092"}}


def settings(flow: Mapping[str, Any] | None = None, east: Mapping[str, Any] | None = None) -> MirrorConfig:
    flows = [{"source": "east", "target": "west", "topics": "orders", **(flow or {})}]
    clusters = {**ENDS, "east": {**ENDS["east"], **(east or {})}}
    return loads(yaml.safe_dump({"lake": {"root": "./lake"}, "clusters": clusters, "flows": flows}))


def same(one: MirrorConfig, other: MirrorConfig) -> bool:
    return one.model_dump(mode="json") == other.model_dump(mode="json")


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yml")), ids=lambda path: path.name)
def test_reading_what_is_written_gives_the_same_settings(path: Path) -> None:
    config = load(path)
    found = written(config)
    assert found.replaced == {}, "the files hold references only"
    again = loads(found.yaml)
    assert same(again, config), found.yaml
    assert written(again).yaml == found.yaml


@pytest.mark.parametrize(
    "flow",
    [
        {"topics": ["orders", "clicks.*", r"a{1,3}", "(?i)mixed.*"], "groups": [], "exclude_topics": []},
        {"topics": [f"topic-{number}-with-a-long-name" for number in range(9)]},
        {"topics": "no, true", "name": "yes"},
        {"topics": "a", "policy": {"template": "all.{topic}"}},
        {"policy": {"name": "default", "separator": "_"}, "start": {"timestamp": "2026-01-01T00:00:00Z"}},
        {"placement": {"map": {"orders.*": {0: 3, 1: 0}}}},
        {"placement": {"by": "key", "count": 12}, "provenance": True},
        {"trigger": "1500ms", "sync": {"interval": "2h", "groups_interval": "10m"}, "chunk_bytes": "1000 B"},
        {"rules": [{"keep": "value.region = '$${x'"}, {"name": "cards", "mask": ["a.b", "items[*].iban", "..ssn"]}]},
        {"rules": [{"hash": {"fields": ["a"], "key": "${secret:scope/key}"}}, {"headers": {"drop": "x-.*"}}]},
        {
            "producer": {"compression.type": "zstd", "client.id": "${env:CLIENT:-x}"},
            "rate": {"bytes_per_second": "3 MiB"},
        },
        {"sync": {"configs_override": {".*": {"min.insync.replicas": 2}}, "acls_principals": {"User:a": "User:b"}}},
    ],
    ids=lambda flow: "-".join(flow),
)
def test_every_kind_of_value_comes_back(flow: dict[str, Any]) -> None:
    config = settings(flow)
    text = written(config).yaml
    assert same(loads(text), config), text


names = st.from_regex(r"[a-z][a-z0-9_-]{0,8}(\.\*)?", fullmatch=True)


@given(
    topics=st.lists(names, min_size=1, max_size=12),
    lanes=st.integers(1, 64),
    trigger=st.integers(0, 10**8),
    chunk=st.integers(1, 2**40),
    leave=st.lists(names, max_size=3),
)
def test_the_round_trip_holds_for_any_values(
    topics: list[str], lanes: int, trigger: int, chunk: int, leave: list[str]
) -> None:
    flow = {"topics": topics, "lanes": lanes, "trigger": f"{trigger}ms", "chunk_bytes": f"{chunk} B"}
    config = settings(flow, {"never_leave": [f"never-{name}" for name in leave]})
    assert same(loads(written(config).yaml), config)


def keys(content: Any, above: str = "") -> Iterator[str]:
    """Yield the path of each key in its order; aliases, and what settings do not know by name, are stars."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            free = above.endswith(("clusters.", "client.", "producer.", "configs.", "clusters.*.topics."))
            yield f"{above}{'*' if free else key}"
            yield from keys(value, f"{above}{'*' if free else key}.")
    elif isinstance(content, list):
        for item in content:
            yield from keys(item, above)


def first_seen(content: Any) -> list[str]:
    return list(dict.fromkeys(keys(content)))


def test_the_order_is_that_of_the_example() -> None:
    example = yaml.safe_load((CONF / "example.yml").read_text())
    order = {key: place for place, key in enumerate(first_seen(example))}
    # Values that are not the defaults, so that every key is written.
    for cluster in example["clusters"].values():
        cluster.update({"land": {"on_gap": "record", "trigger": "5s"}} if "kind" not in cluster else {})
    config = settings(
        {
            "name": "n",
            "exclude_topics": [],
            "policy": "identity",
            "provenance": True,
            "groups": "a",
            "exclude_groups": "b",
            "sync": {"groups": False, "configs": False, "acls": True, "interval": "90s"},
            "mm2": {"heartbeats": True, "checkpoints": True},
            "rules": [{"name": "r", "topics": "orders", "keep": "value.a > 1", "on_error": "drop"}],
            "delivery": "at_least_once",
            "start": "latest",
            "lanes": 3,
            "trigger": "1s",
        },
        {"client": {"security.protocol": "PLAINTEXT"}, "never_leave": "pii", "land": {"on_gap": "record"}},
    )
    written_keys = [key for key in first_seen(yaml.safe_load(written(config).yaml)) if key in order]
    assert len(written_keys) > 25
    assert written_keys == sorted(written_keys, key=lambda key: order[key])


def test_defaults_and_what_follows_are_left_out() -> None:
    text = written(settings({"lanes": 2, "sync": {"groups": True}, "policy": "default"})).yaml
    assert text == (
        "lake:\n  root: ./lake\n\n"
        "clusters:\n  east:\n    bootstrap_servers: e:9092\n  west:\n    bootstrap_servers: w:9092\n\n"
        "flows:\n  - source: east\n    target: west\n    topics: orders\n"
    )


def test_a_secret_in_place_becomes_a_reference_and_is_written_nowhere() -> None:
    secret = "hunter2-very-secret"  # noqa: S105
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{secret}";'
    options = {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}
    for client in (
        {"sasl.username": "u", "sasl.password": secret},
        {"sasl.username": "u", "sasl.password": f"${{env:NOT_SET:-{secret}}}"},
        {"sasl.jaas.config": jaas},
    ):
        found = written(settings(east={"client": {**options, **client}}))
        assert secret not in found.yaml
        assert secret not in repr(found)
        assert list(found.replaced.values()) in (["EAST_SASL_PASSWORD"], ["EAST_SASL_JAAS_CONFIG"])
        assert "${env:EAST_SASL_" in found.yaml
        loads(found.yaml)
    kept = {"sasl.username": "u", "sasl.password": "${secret:kafka/password}"}
    assert "password: ${secret:kafka/password}" in written(settings(east={"client": {**options, **kept}})).yaml
