"""The settings file: what it means, and every fault at once with file, line, path and remedy."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from mirrorlake.config import load, loads
from mirrorlake.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from mirrorlake.errors import ConfigError

CONF = Path(__file__).parents[3] / "conf"
BASE = """\
lake: {root: ./lake}
clusters:
  east: {bootstrap_servers: "east:9092"}
  west: {bootstrap_servers: "west:9092"}
  central: {bootstrap_servers: "central:9092"}
"""


def flows(*lines: str) -> MirrorConfig:
    return loads(BASE + "flows:\n" + "".join(f"  - {{{line}}}\n" for line in lines))


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loads(text, path=Path("conf/x.yml"))
    return [str(fault) for fault in caught.value.faults]


def fault(*lines: str) -> str:
    with pytest.raises(ConfigError) as caught:
        flows(*lines)
    assert len(caught.value.faults) == 1, caught.value
    return str(caught.value.faults[0])


def test_the_example_file_states_the_defaults() -> None:
    example = load(CONF / "example.yml").flows[0].model_dump(exclude={"topics", "producer", "rules"})
    smallest = (
        flows("source: east, target: central, topics: x").flows[0].model_dump(exclude={"topics", "producer", "rules"})
    )
    assert example == smallest


def keys(model: type[BaseModel]) -> set[str]:
    found = set()
    for name, field in model.model_fields.items():
        found.add(field.alias or name)
        for inner in (field.annotation, *members(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found |= keys(inner)
    return found


def members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (dict, tuple, UnionType) else ()


def test_what_is_commented_out_in_the_example_file_is_valid_too() -> None:
    text = (CONF / "example.yml").read_text(encoding="utf-8")
    unity = re.sub(r"# (catalog|schema|checkpoints): ", r"\1: ", text.replace("  root: ../lake\n", ""))
    assert loads(unity).lake.namespace() == ("main", "mirrorlake")


def test_every_setting_stands_in_the_example_file_with_a_sentence_above_it() -> None:
    lines = (CONF / "example.yml").read_text(encoding="utf-8").splitlines()
    known, explained = keys(MirrorConfig), set()
    for above, line in pairwise(lines):
        key = line.lstrip("-# ").split(":")[0]
        if key in known and above.strip().startswith("#") and above.rstrip().endswith("."):
            explained.add(key)
    assert known - explained == set()


@pytest.mark.parametrize(
    ("alias", "policies", "problem"),
    [
        ("a", ('{name: default, separator: ""}', "default"), "the separator is empty"),
        ("a", ('{name: default, separator: "#"}', "default"), "'#' is not a separator"),
        ("a", ('{name: default, separator: "_"}', "default"), "the separator is '.' here and '_' in another flow"),
        ("a_1", ('{name: default, separator: "_"}', "identity"), "the alias 'a_1' contains the separator"),
    ],
)
def test_separators_that_would_hide_a_hop_are_refused(alias: str, policies: tuple[str, str], problem: str) -> None:
    text = (
        f"lake: {{root: x}}\nclusters: {{{alias}: {{bootstrap_servers: 'a:1'}}, b: {{bootstrap_servers: 'b:1'}}, "
        f"c: {{bootstrap_servers: 'c:1'}}}}\nflows:\n"
        f"- {{source: {alias}, target: b, topics: x, policy: {policies[0]}}}\n"
        f"- {{source: b, target: c, topics: y, policy: {policies[1]}}}"
    )
    with pytest.raises(ConfigError, match=re.escape(problem)):
        loads(text)


def test_values_are_read_in_the_spellings_people_use() -> None:
    flow = flows(
        "source: east, target: central, topics: [a, 'b|c'], exclude_topics: [], chunk_bytes: 1.5 GiB, trigger: 1500ms, "
        "start: {timestamp: 2026-01-01T01:00:00+01:00}, groups: [], sync: {acls: true}"
    ).flows[0]
    assert flow.topics.expressions == ("a", "b", "c")
    assert not flow.exclude_topics
    assert not flow.group_selection.matches("app"), "no groups are named"
    assert flow.chunk_bytes == 1_610_612_736
    assert flow.trigger == timedelta(milliseconds=1500)
    assert flow.start.timestamp == datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert flow.start.timestamp_ms == 1_767_225_600_000
    assert flow.sync.acls
    assert flow.sync.groups


def test_the_lake_is_a_path_or_a_catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ML_BUCKET", "s3a://bucket/lake/")
    text = BASE + "flows: [{source: east, target: west, topics: a}]"
    assert loads(text).lake.location() == str(tmp_path / "lake")
    assert loads(text).lake.checkpoint_location() == str(tmp_path / "lake" / "checkpoints")
    assert loads(text.replace("./lake", '"${env:ML_BUCKET}"')).lake.location() == "s3a://bucket/lake"
    unity = text.replace("root: ./lake", "catalog: main, schema: ml, checkpoints: /Volumes/main/ml/c")
    assert loads(unity).lake.location() is None
    assert loads(unity).lake.namespace() == ("main", "ml")
    assert loads(unity).lake.checkpoint_location() == "/Volumes/main/ml/c"
    assert "keep either root or catalog" in faults(text.replace("./lake", "./lake, catalog: main"))[0]
    assert "add `checkpoints:` beside catalog" in faults(text.replace("root: ./lake", "catalog: main, schema: ml"))[0]
    assert "the relay has no location" in faults(text.replace("root: ./lake", ""))[0]


def test_live_tasks_on_a_catalog_are_refused_and_the_default_there_is_streaming_without_a_word() -> None:
    text = BASE.replace("root: ./lake", "catalog: main, schema: ml, checkpoints: /Volumes/main/ml/c")
    line = "source: east, target: west, topics: a"
    assert loads(f"{text}flows: [{{{line}, execution: streaming}}]").flows[0].execution == "streaming"
    [found] = faults(f"{text}flows: [{{{line}, execution: live}}]")
    assert "flows[0].execution: live tasks read and write files" in found
    assert "leave it out: on a catalog it is streaming" in found
    landing = text.replace('"east:9092"', '"east:9092", land: {execution: live}')
    assert "clusters.east.land.execution" in faults(f"{landing}flows: [{{{line}}}]")[0]


def test_environment_references_stand_for_any_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ML_LANES", "7")
    monkeypatch.setenv("ML_TOPICS", "orders, clicks.*")
    monkeypatch.setenv("ML_ACLS", "true")
    line = 'topics: "${env:ML_TOPICS}", lanes: "${env:ML_LANES}", sync: {acls: "${env:ML_ACLS}"}'
    line = f"source: east, target: central, {line}"
    flow = flows(line).flows[0]
    assert (flow.topics.expressions, flow.lanes, flow.sync.acls) == (("orders", "clicks.*"), 7, True)
    monkeypatch.delenv("ML_TOPICS")
    assert "environment variable ML_TOPICS (not set)" in fault(line)
    assert "a secret is not allowed here" in fault('source: east, target: central, topics: "${secret:a/b}"')


def test_settings_survive_being_written_and_read_again() -> None:
    config = load(CONF / "example.yml")
    again = loads(yaml.safe_dump(config.model_dump(mode="json", by_alias=True)))
    assert again.model_dump() == config.model_dump()


def test_an_empty_value_counts_as_not_given() -> None:
    text = BASE.replace(
        '{bootstrap_servers: "east:9092"}', '\n    bootstrap_servers: "east:9092"\n    client:\n    land:\n'
    )
    config = loads(text + "flows: [{source: east, target: west, topics: a, policy: , groups: }]")
    assert config.cluster("east").client == {}
    assert config.flows[0].policy.kind == "default"


def test_words_that_yaml_reads_as_truth_values_are_aliases_all_the_same() -> None:
    text = BASE.replace("west:", "no:", 1) + "flows: [{source: east, target: 'no', topics: a}]"
    assert loads(text).flows[0].target == "no"
    assert "quote it" in faults(text.replace("'no'", "no"))[0]


@pytest.mark.parametrize(
    ("line", "where", "problem", "remedy"),
    [
        ("topcs: a, topics: a", "topcs", "unknown key 'topcs'", "did you mean 'topics'?"),
        ("topics: a, policy: identiy", "policy", "'identiy' is not a replication policy", "did you mean 'identity'?"),
        ("topics: a, policy: {template: '{topc}'}", "policy", "unknown placeholder {topc}", "{topic}, {source}"),
        ("topics: a, policy: {temlate: x}", "policy", "a mapping with temlate", "{template:"),
        ("topics: a, execution: spark", "execution", "'spark' is not allowed", "known are live, streaming"),
        ("topics: a, lanes: 65", "lanes", "'65' is out of range", "less than or equal to 64"),
        ("topics: a, lanes: true", "lanes", "true does not fit", "integer"),
        ("topics: a, chunk_bytes: 64", "chunk_bytes", "'64' is not a size", "64 MiB"),
        ("topics: a, trigger: 99999999999999 d", "trigger", "'99999999999999 d' is not an interval", "0s"),
        ("topics: a, start: earlist", "start", "'earlist' is not a start", "did you mean 'earliest'?"),
        ("topics: a, start: {timestamp: 2026-01-01T00:00:00}", "start", "has no time zone", "2026-01-01T00:00:00Z"),
        ("topics: a, sync: {groups: maybe}", "sync.groups", "neither true nor false", "write true or false"),
        ("topics: a, sync: {interval: 0s}", "sync.interval", "'0s' would read", "write 60s"),
        ("topics: a, sync: {configs_exclude: 'a('}", "sync.configs_exclude", "unclosed", ""),
        ("topics: a, sync: {configs_override: {a: {x: 1}}}", "sync.configs_override.a.x", "is not a topic setting", ""),
        ("topics: a, sync: {acls_principals: {al: 'User:a'}}", "sync.acls_principals.al", "not a principal", "User:"),
        ("topics: orders*", "topics", "dangling star", "orders.*"),
        ("topics: {a: b}", "topics", "is not a selection", "list"),
        ("topics: a, name: 'a b'", "name", "'a b' is not a name for a flow", "letters"),
        *(
            (f"topics: a, name: '{name}'", "name", f"'{name}' is not a name for a flow", "in front")
            for name in (".", "..", "-", "--conf", "../up", "->b", ".hidden")
        ),
        ("topics: 'a, b', policy: {template: all}", "policy", "gives all topics of the flow the same name", "{topic}"),
        ("topics: 'a.*', policy: {template: '{source}.all'}", "policy", "their records would be mixed", "each topic"),
        ("topics: a, replication_factor: 0", "replication_factor", "greater than", ""),
        ("topics: a, objectives: {rpo: 0s}", "objectives.rpo", "no mirror can meet this", "30s"),
        ("lanes: 2", "", "'topics' is missing", "add `topics:`"),
        ("topics: a, producer: {acks: 1}", "producer.acks", "is refused", "remove it"),
        ("topics: a, producer: [acks]", "producer", "(hidden) is not a mapping", "name: value"),
    ],
)
def test_a_fault_names_its_place_what_is_wrong_and_the_remedy(line: str, where: str, problem: str, remedy: str) -> None:
    text = fault(f"source: east, target: central, {line}")
    assert text.startswith(f"settings:7 flows[0]{'.' if where else ''}{where}: "), text
    assert problem in text
    assert remedy in text


@pytest.mark.parametrize(
    ("cluster", "problem"),
    [
        ('{bootstrap_servers: "east"}', "'east' is not a host:port"),
        ('{bootstrap_servers: "east:99999"}', "'east:99999' is not a host:port"),
        ('{bootstrap_servers: "SSL://east:1"}', "leave out the protocol"),
        ("{bootstrap_servers: []}", "no address"),
        ("{bootstrap_servers: 9092}", "'9092' is not an address"),
        ("{bootstrap_servers: a:1, land: {on_gap: hlt}}", "did you mean 'halt'?"),
        ("{bootstrap_server: a:1}", "did you mean 'bootstrap_servers'?"),
        ("a:1", "is not a mapping"),
    ],
)
def test_a_faulty_cluster_is_named(cluster: str, problem: str) -> None:
    text = (
        BASE.replace('{bootstrap_servers: "east:9092"}', cluster) + "flows: [{source: east, target: west, topics: a}]"
    )
    found = faults(text)
    assert any(item.startswith("conf/x.yml:3 clusters.east") and problem in item for item in found), found


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("tables: [{topics: s, schema: registry}]", "tables[0].schema: json have no columns of a registry"),
        ("tables: [{topics: s, values: avro}]", "tables[0].values: these records name schemas, and no schema registry"),
        ("tables: [{topics: s, values: avro, schema: n INT}]", "tables[0].schema: have the columns of their registry"),
        ("tables: [{topics: s, values: text, schema: n INT}]", "tables[0].schema: have one column, value"),
        ("tables: [{topics: s, columns: {_n: n}}]", "tables[0].columns._n: '_n' is not a column's name"),
        ("tables: [{topics: s, columns: {n: n +}}]", "tables[0].columns.n: it is not an expression of Spark SQL"),
        ("tables: [{topics: s, name: a/b}]", "tables[0].name: 'a/b' is not a table's name"),
        ("tables: [{topics: s, sources: [east, moon]}]", "tables[0].sources[1]: no flow has 'moon' as its source"),
        ("tables: [{topics: a, name: s}, {topics: b, name: S}]", "tables[1].name: a second table 'S'"),
        *(
            (f"tables: [{{topics: s, {entry}}}]", f"tables[0].{said}")
            for entry, said in {
                "partition_by: [n, _offset]": "partition_by[1]: each record has a '_offset' of its own",
                "partition_by: 'd, D', columns: {d: n + 1}": "partition_by[1]: 'D' stands there twice",
                "partition_by: [m], schema: n BIGINT": "partition_by[0]: the table has no column 'm'",
                "partition_by: [n], schema: n ARRAY<INT>": "partition_by[0]: 'n' is not of a type that partitions have",
                "columns: {day: n, Day: m}": "columns.Day: 'Day' is another column, too",
            }.items()
        ),
        ("tracking: {uri: /tmp/mlruns}", "tracking.uri: the value (hidden) is not a tracking URI"),
        ("tracking: {enabled: perhaps}", "tracking.enabled: 'perhaps' is none of auto, true and false"),
        ("tracking: {timeout: 0s}", "tracking.timeout: '0s' leaves no time"),
        ("sampling: {every: 30}", "sampling.every: is not an interval"),
        ("sampling: {keep: 1h}", "sampling.keep: less than a day"),
        ("metrics: {port: 70000}", "metrics.port: '70000' is out of range"),
        ("metrics: {address: 'http://x'}", "metrics.address: is not an address to listen at"),
        ("metrics: {every: 1s}", "metrics.every: less than 5 s"),
    ],
)
def test_a_faulty_section_is_named(section: str, said: str) -> None:
    [found] = faults(f"{BASE}flows: [{{source: east, target: west, topics: a}}]\n{section}")
    place, _, problem = said.partition(": ")
    assert found.startswith(f"conf/x.yml:7 {place}: ")
    assert problem in found


PARTS = """\
lake: {rot: ./lake}
cluster: {}
clusters:
  east: {bootstrap_servers: a:1}
  west: {bootstrap_servers: b}
  west: {bootstrap_servers: c:1}
flows:
  - {source: west, target: east, topics: a, lanes: x}
"""
BETWEEN = """\
lake: {root: ./lake}
clusters:
  ea.st: {bootstrap_servers: a:1}
  west: {bootstrap_servers: c:1}
flows:
  - {source: wst, target: west, topics: a}
  - {source: west, target: west, topics: a}
  - {source: west, target: ea.st, name: a->b, topics: a}
  - {source: west, target: ea.st, name: a.b, topics: b}
  - {source: west, target: ea.st, name: a.b, topics: c}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            PARTS,
            [
                "conf/x.yml:1 lake.rot: unknown key 'rot'",
                "conf/x.yml:2 cluster: unknown key 'cluster' — did you mean 'clusters'?",
                "conf/x.yml:5 clusters.west: 'west' is given twice (lines 5 and 6)",
                "conf/x.yml:8 flows[0].lanes: 'x' does not fit",
            ],
        ),
        (
            BETWEEN,
            [
                "conf/x.yml:3 clusters.ea.st: 'ea.st' is not an alias",
                "conf/x.yml:6 flows[0].source: there is no cluster 'wst' — did you mean 'west'?",
                "conf/x.yml:7 flows[1].target: source and target are both 'west'",
                "conf/x.yml:9 flows[3].name: 'a.b' and 'a->b' are both 'a.b' in Kafka names",
                "conf/x.yml:10 flows[4].name: a second flow 'a.b'",
            ],
        ),
    ],
)
def test_every_fault_of_the_parts_is_reported_at_once_and_then_every_one_between_them(
    text: str, expected: list[str]
) -> None:
    found = faults(text)
    missing = [said for said in expected if not any(item.startswith(said) for item in found)]
    assert not missing, "\n".join(found)
    lines = [int(item.split(":")[1].split()[0]) for item in found]
    assert lines == sorted(lines), "in the order of the file"


def test_a_cycle_that_cannot_be_kept_apart_is_refused_when_the_file_is_read() -> None:
    text = fault(
        "source: east, target: west, topics: orders, policy: {template: '{topic}'}",
        "source: west, target: east, topics: orders, policy: identity",
    )
    assert (
        "settings:7 flows[0].policy: records could be mirrored in an endless loop: east->west, west->east, east->west"
        in text
    )
    assert "use policy: default" in text
    assert "provenance: true on east->west, west->east" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "conf/x.yml: the file is empty"),
        ("lake: {root: x}\nclusters: {}\nflows: []", "x.yml:2 clusters: it is empty — see conf/example.yml"),
        ("- a\n", "conf/x.yml:1: the file holds no mapping"),
        ("a: [", "conf/x.yml:1: not valid YAML (column 5)"),
        ("a: 1\n---\nb: 2", "conf/x.yml:2: not valid YAML"),
        ("a\x00b", "conf/x.yml: not valid YAML"),
        ("lake: &a [*a]", "conf/x.yml:1: the file unfolds without end"),
        ("lake: !!python/object:os.system x", "the YAML tag tag:yaml.org,2002:python/object:os.system is not read"),
        ("lake: !!int secret", "conf/x.yml:1 lake: the value (hidden) is not a YAML int"),
        ("lake: {root: 0b_}", "lake.root: the value (hidden) is not a YAML int"),
        ("? [a]\n: b", "a key that is not a plain word"),
        ("{}", "'lake' is missing — add `lake:` (the location of the lake)"),
    ],
)
def test_a_file_that_is_no_settings_file_is_a_fault(text: str, expected: str) -> None:
    assert any(expected in item for item in faults(text)), faults(text)


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load(tmp_path / "missing.yml")
    with pytest.raises(ConfigError, match="this is a folder"):
        load(tmp_path)
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "binary.yml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "binary.yml" / "x.yml")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 70)
    | st.text("aeio.*[(${}:-> ", max_size=6)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=5,
)
places = st.sampled_from(
    [(name,) for name in MirrorConfig.model_fields]
    + [("clusters", "east", name) for name in ClusterConfig.model_fields]
    + [("flows", 0, name) for name in FlowConfig.model_fields]
    + [("clusters", "east"), ("flows", 0), ("flows", 0, "sync", "groups"), ("clusters", "east", "client", "acks")]
)


@given(places, plain)
def test_whatever_stands_in_the_file_is_settings_or_a_config_error(place: tuple[str | int, ...], value: object) -> None:
    data: Any = yaml.safe_load(BASE + "flows: [{source: east, target: central, topics: a, sync: {}}]")
    data["clusters"]["east"]["client"] = {}
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    text = yaml.safe_dump(data)
    try:
        config = loads(text)
    except ConfigError as error:
        found = error
    else:
        assert config.model_dump()
        return
    assert found.exit_code == 2
    assert all(fault.problem for fault in found.faults)


@pytest.mark.parametrize(
    ("name", "adds_hops"), [("two-way.yml", [True, True]), ("aggregation.yml", [False, False, True, True])]
)
def test_loops_run_in_the_sandbox_and_write_where_records_have_been(name: str, adds_hops: list[bool]) -> None:
    config = load(CONF / name)
    assert [flow.adds_hops for flow in config.flows] == adds_hops
    for cluster in config.clusters.values():
        assert re.fullmatch(r"127\.0\.0\.1:\d+", cluster.servers())
