"""The stage that keeps records from looping and writes where they were read, on Arrow batches."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema import MirrorConfig
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.loops.hops import HOP_KEY, hops
from mirrorlake.rules import Viewed
from mirrorlake.rules.hop_header import ProvenanceStage, provenance_stage
from tests.builders import HEADERS, batch_of, config_of

Headers = list[tuple[str, bytes | None]] | None


def pair() -> MirrorConfig:
    return config_of(*(f"source: {a}, target: {b}, topics: '.*', policy: identity" for a, b in ("ab", "ba")))


def stage(settings: MirrorConfig, name: str) -> ProvenanceStage:
    found = provenance_stage(settings.flow(name))
    assert isinstance(found, ProvenanceStage)
    return found


def batch(headers: list[Headers], *, first: int = 0) -> pa.RecordBatch:
    count = len(headers)
    values = [str(row).encode() for row in range(count)]
    return batch_of(range(first, first + count), values=values, keys=[b"k"] * count, headers=headers)


def sent(viewed: Viewed) -> dict[int, list[tuple[str, bytes | None]]]:
    rows = viewed.records.to_pylist()
    return {row["offset"]: [(h["key"], h["value"]) for h in row["headers"]] for row in rows}


SOURCE = SourcePartition("t", 1, 3)
hop_values = [
    b"a/t/0/1",
    b"b/t/0/1",
    b"c/t/2/9",
    b"d/t/0/1",
    b"elsewhere/t/0/1",
    b"c/other/0/1",
    None,
    b"",
    b"\xff",
    b"a b/t/0/1",
]
header = st.tuples(st.sampled_from([HOP_KEY, "x", ""]), st.sampled_from(hop_values))


@pytest.mark.law("C", "E")
@given(
    st.lists(st.none() | st.lists(header, max_size=4), max_size=12),
    st.integers(0, 3),
    st.sampled_from(["a->b", "b->a"]),
)
def test_the_stage_does_what_one_record_at_a_time_would_do(headers: list[Headers], cut: int, name: str) -> None:
    settings = pair()
    flow, one = settings.flow(name), stage(settings, name)
    # A slice, as lanes cut them: its offsets do not begin at 0.
    viewed = one(SOURCE, batch(headers, first=100).slice(cut))
    wanted, withheld = {}, set()
    for offset, had in list(enumerate(headers, 100))[cut:]:
        if flow.target in {hop.source for hop in hops(had)}:
            withheld.add(offset)
        else:
            wanted[offset] = [*(had or []), (HOP_KEY, f"{flow.source}/t/3/{offset}".encode())]
    assert sent(viewed) == wanted, "law C: all else stays as it was, one header more at the end"
    assert {offset for one in viewed.withheld for offset in range(90, 120) if one.ranges.contains(offset)} == withheld
    assert sum(one.ranges.count for one in viewed.withheld) == len(withheld), "law E: each is explained once"
    why = ("filtered", "loop", f"it has been on {flow.target}")
    assert all((one.kind, one.rule, one.reason) == why for one in viewed.withheld)
    assert viewed.partitions is None
    assert viewed.records.schema.field("headers").type == HEADERS


def test_flows_without_need_have_no_stage() -> None:
    settings = config_of("source: a, target: b, topics: t", "source: a, target: c, topics: t, provenance: true")
    assert provenance_stage(settings.flows[0]) is None
    assert provenance_stage(settings.flows[1]) is not None


def test_the_default_policy_tells_hops_too_when_asked() -> None:
    settings = config_of(
        "source: a, target: b, topics: '.*', provenance: true", "source: b, target: a, topics: '.*', provenance: true"
    )
    viewed = stage(settings, "b->a")(SourcePartition("t", 1, 0), batch([None, [(HOP_KEY, b"a/t/0/1")]]))
    assert sent(viewed) == {0: [(HOP_KEY, b"b/t/0/0")]}


def test_copies_of_a_flow_for_the_moment_forward_like_the_flow() -> None:
    settings = pair()
    again = provenance_stage(settings.flow("a->b").redrive())
    drill = provenance_stage(settings.flow("a->b").model_copy(update={"name": "drill", "target": "d"}))
    for one in (again, drill):
        assert one is not None
        assert list(sent(one(SOURCE, batch([None])))) == [0]
