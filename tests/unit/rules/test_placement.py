"""Which target partition a record goes to: what is written, what follows for the remote topic, and the stage itself."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mirrorlake.config.schema import FlowConfig, Placement
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.plan import TopicSpec, topic_changes
from mirrorlake.rules import Placer, Viewed
from mirrorlake.topics import wanted_remote_topic
from tests.builders import partition_for


def read(written: Any) -> Placement:
    return FlowConfig(source="a", target="b", topics="orders", placement=written).placement


def view(*keys: bytes | None) -> Viewed:
    offsets = list(range(len(keys)))
    return Viewed(records=pa.RecordBatch.from_pydict({"offset": offsets, "key": pa.array(keys, pa.binary())}))


@pytest.mark.parametrize(
    ("written", "needs"),
    [
        ("keep", 5),
        ({"by": "key", "count": 12}, 12),
        ({"by": "key", "count": "3"}, 3),
    ],
)
def test_a_placement_is_read_and_says_what_the_remote_topic_needs(written: Any, needs: int) -> None:
    placement = read(written)
    assert placement.remote_partitions(5) == needs
    assert read(placement.plain()) == placement
    copy = pickle.loads(pickle.dumps(Placer(placement)))  # noqa: S301
    assert copy == Placer(placement), "workers get it pickled"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("key", "not a placement"),
        (7, "not a placement"),
        ({"by": "value", "count": 3}, "cannot be placed by"),
        ({"by": "key"}, "'count' is missing"),
        ({"by": "key", "count": 0}, "not a number of partitions"),
        ({"by": "key", "count": True}, "not a number of partitions"),
        ({"by": "key", "count": 10**9}, "not a number of partitions"),
        ({"by": "key", "count": 3, "cuont": 3}, "unknown key 'cuont'"),
    ],
)
def test_what_is_no_placement_is_a_fault_with_a_remedy(written: Any, problem: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read(written)
    findings = caught.value.errors()[0]["ctx"]["findings"]
    assert any(problem in finding.problem for finding in findings), findings
    assert all(finding.remedy for finding in findings)


@pytest.mark.law("D")
@given(keys=st.lists(st.none() | st.binary(max_size=12)), count=st.integers(1, 50), partition=st.integers(0, 99))
def test_law_d_by_key(keys: list[bytes | None], count: int, partition: int) -> None:
    found = Placer(Placement("key", count=count))(SourcePartition("orders", 1, partition), view(*keys)).partitions
    assert found is not None
    expected = [partition % count if key is None else partition_for(key, count) for key in keys]
    assert found.tolist() == expected, "law D: equal keys in equal partitions, no key by source partition"


def test_keep_leaves_the_view_alone_and_every_other_placement_has_a_fingerprint() -> None:
    viewed = view(b"a", None)
    assert Placer(Placement())(SourcePartition("orders", 1, 5), viewed) is viewed
    placements = Placement(), Placement("key", count=3), Placement("key", count=4)
    versions = [Placer(placement).version for placement in placements]
    assert (versions[0], len(set(versions))) == ("", 3)


@pytest.mark.parametrize(
    ("written", "source", "there", "actions"),
    [
        ("keep", 4, 6, []),
        ({"by": "key", "count": 3}, 4, 2, ["conflict"]),
        ({"by": "key", "count": 3}, 4, 6, ["conflict"]),
    ],
)
def test_what_a_remote_topic_needs(written: Any, source: int, there: int, actions: list[str]) -> None:
    flow = FlowConfig(name="a->b", source="a", target="b", topics="orders", placement=written)
    topic = KnownTopic(name="orders", generation=1, topic_id="", partitions=source, configs={})
    wanted = wanted_remote_topic(flow, [topic])
    actual = TopicSpec(name=wanted.name, partitions=there)
    assert [change.action for change in topic_changes(where="b", wanted=wanted, actual=actual)] == actions
