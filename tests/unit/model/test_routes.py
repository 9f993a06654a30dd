"""Routes of records: each comes to each cluster once, and to none it has been on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirrorlake.config.schema.selection import TopicMatcher
from mirrorlake.model.loops.collisions import TopicPlace, survey
from mirrorlake.model.loops.cycles import round_trips
from mirrorlake.model.loops.hops import Hop, hops
from mirrorlake.model.patterns import TopicPattern, parse_patterns
from mirrorlake.model.policy import DefaultPolicy, IdentityPolicy, ReplicationPolicy, TemplatePolicy, is_cycle

Provenance = Literal["auto", True, False]


@dataclass(frozen=True)
class Flow:
    name: str
    source: str
    target: str
    topics: TopicPattern
    replication_policy: ReplicationPolicy
    provenance: Provenance = "auto"
    exclude: TopicPattern = field(default_factory=TopicPattern)

    def carries(self, topic: str) -> bool:
        matcher = TopicMatcher(self.topics, self.exclude)
        return matcher.matches(topic) and not is_cycle(self.replication_policy, topic, self.target)

    def remote_topic(self, topic: str) -> str:
        return self.replication_policy.remote_topic(self.source, self.target, topic)


def flow(
    pair: str,
    selection: str = "t",
    policy: str = "identity",
    *,
    provenance: Provenance = "auto",
    exclude: str = "",
    name: str = "",
) -> Flow:
    """Make a flow of a pair as `a>b`."""
    source, target = pair.split(">")
    known: dict[str, ReplicationPolicy] = {"default": DefaultPolicy(), "identity": IdentityPolicy(source)}
    chosen, excluded = known.get(policy) or TemplatePolicy(policy), parse_patterns(exclude, required=False)
    name = name or f"{pair} {policy} {selection}"
    return Flow(name, source, target, parse_patterns(selection), chosen, provenance, excluded)


def simulate(flows: Sequence[Flow], origin: TopicPlace, *, most: int = 2_000) -> Counter[TopicPlace]:
    """Pass one record on hop by hop, as the flows do that see nothing but its headers; return how often it arrives."""
    told = survey(flows).provenance
    arrived: Counter[TopicPlace] = Counter()
    travelling: list[tuple[TopicPlace, tuple[str, ...]]] = [(origin, ())]
    while travelling:
        place, been = travelling.pop()
        for each in flows:
            if each.source != place.alias or not each.carries(place.topic):
                continue
            if each.name in told and each.target in been:
                continue
            there = TopicPlace(each.target, each.remote_topic(place.topic))
            arrived[there] += 1
            assert there != origin, "none returns to where it was born"
            assert arrived.total() <= most, "it ends"
            travelling.append((there, (*been, place.alias) if each.name in told else been))
    return arrived


aliases = "abcdef"
pairs = st.sampled_from([f"{a}>{b}" for a, b in permutations(aliases, 2)])


@given(
    st.lists(
        st.builds(
            flow,
            pairs,
            st.sampled_from(["t", "t, all.t", "u"]),
            st.sampled_from(["identity", "default", "all.{topic}", "{topic}"]),
        ),
        min_size=1,
        max_size=12,
        unique_by=lambda each: (each.source, each.target, each.replication_policy),
    ),
    st.sampled_from(aliases),
)
def test_whatever_the_names_nothing_goes_round_and_no_place_gets_a_record_twice(flows: list[Flow], origin: str) -> None:
    assume(not survey(flows).refusals)
    assert set(simulate(flows, TopicPlace(origin, "t")).values()) <= {1}


def mesh(clusters: str, policy: str = "identity", **options: object) -> list[Flow]:
    return [flow(f"{a}>{b}", policy=policy, **options) for a, b in permutations(clusters, 2)]  # type: ignore[arg-type]


# -- which flows need it ---------------------------------------------------------------------------------------------


def names(flows: Sequence[Flow]) -> set[str]:
    return {each.name for each in flows}


@pytest.mark.parametrize(
    "flows",
    [
        pytest.param([flow("a>b"), flow("b>a")], id="both ways"),
        pytest.param([flow("a>b", ".*"), flow("b>a", "t.*")], id="expressions that may meet"),
        pytest.param([flow("a>b", "x.*"), flow("b>a", "xy")], id="an expression may meet a name"),
        pytest.param([flow("a>b", "a?t"), flow("b>a")], id="optional character"),
        pytest.param(
            [flow("a>b"), flow("b>a"), flow("b>c", "u"), flow("c>b", "u")], id="two pairs of different topics"
        ),
    ],
)
def test_provenance_is_added_where_names_do_not_keep_records_apart(flows: list[Flow]) -> None:
    found = survey(flows)
    assert not found.refusals
    assert found.provenance == names(flows)
    for place in {TopicPlace(each.source, "t") for each in flows}:
        assert set(simulate(flows, place).values()) <= {1}


RING, PREFIXED = "a>b identity t, b>c identity t, c>a identity t", "use policy: default"


@pytest.mark.parametrize(
    ("flows", "says", "remedy"),
    [
        pytest.param([flow("a>b"), flow("b>c"), flow("c>a")], RING, PREFIXED, id="ring"),
        pytest.param(
            [flow("a>b"), flow("b>c", policy="{topic}"), flow("c>a")], "endless loop", PREFIXED, id="template"
        ),
        pytest.param(mesh("abc"), "", PREFIXED, id="mesh"),
        pytest.param(mesh("abcd", provenance=True), "", PREFIXED, id="mesh of four"),
        pytest.param([flow("a>b"), flow("b>a"), flow("b>c"), flow("c>b")], "both write t on b", PREFIXED, id="star"),
    ],
)
def test_rings_and_meshes_under_one_name_are_refused_by_one_error(flows: list[Flow], says: str, remedy: str) -> None:
    [refusal] = survey(flows).refusals
    assert says in refusal.problem
    assert refusal.remedy.startswith(remedy)
    assert refusal.key == "policy"


@pytest.mark.parametrize(
    "flows",
    [
        pytest.param(mesh("abc", "default"), id="names tell"),
        pytest.param([flow("a>b"), flow("b>c")], id="chain"),
        pytest.param([flow("a>b"), flow("b>a", "other")], id="topics that do not meet"),
        pytest.param([flow("a>c", policy="all.{topic}"), flow("b>c", policy="all.{topic}")], id="merged"),
        pytest.param([flow("a>b"), flow("b>a", policy="default")], id="comes home under another name"),
        pytest.param([flow("a>b", "t.*"), flow("b>a", ".*", "default")], id="all comes home under another name"),
        pytest.param([flow("a>b"), flow("b>a", exclude="t")], id="excluded on the way back"),
        pytest.param([flow("a>b", "x"), flow("b>a", "xy")], id="one name begins like the other"),
        pytest.param(
            [
                flow("a>b", "x.*, b.*"),
                flow("b>c", ".*", "default"),
                flow("c>b", ".*", "default"),
                flow("b>a", r"c\.b\..*", "default"),
            ],
            id="the only way home is closed by the default policy",
        ),
        pytest.param([flow("a>b", "x" * 249), flow("b>a", "x" * 249, "p.{topic}")], id="no legal name"),
        pytest.param([flow("a>c"), flow("a>c", policy="all.{topic}")], id="twice under two names"),
        pytest.param([flow("a>c", r"a\..*"), flow("b>c", "a_.*")], id="names that need not be there"),
    ],
)
def test_flows_that_keep_apart_or_mean_to_merge_need_no_provenance(flows: list[Flow]) -> None:
    assert survey(flows).provenance == set()
    assert not survey(flows).refusals


def test_a_full_mesh_is_answered_in_bounded_time() -> None:
    flows = mesh("abcdefghij", "default", selection=".*")
    assert not round_trips(flows)
    assert round_trips([*flows, flow("a>b", ".*")])
    assert round_trips([*flows, flow("a>b", "x.*")]), "too many ways round to tell: refused"
    assert not round_trips([*flows[:12], flow("a>b", "x.*")])


def test_a_flow_that_needs_provenance_and_may_not_is_refused() -> None:
    [refusal] = survey([flow("a>b"), flow("b>a", provenance=False)]).refusals
    assert (refusal.flow, refusal.key) == ("b>a identity t", "provenance")
    assert "endless loop" in refusal.problem


def test_a_round_trip_by_templates_is_refused_until_it_is_asked_for() -> None:
    for second in ("identity", "default"):
        way = "{topic}" if second == "identity" else "identity"
        selection = "t" if second == "identity" else ".*"
        [refusal] = survey([flow("a>b", selection, way), flow("b>a", selection, second)]).refusals
        assert refusal.key == "policy"
        asked = [flow("a>b", selection, way, provenance=True), flow("b>a", selection, second, provenance=True)]
        assert survey(asked).provenance == names(asked)
    only_one = [flow("a>b", ".*", "identity", provenance=True), flow("b>a", ".*", "default")]
    assert survey(only_one).provenance == names(only_one), "the other flow of the round trip writes it, too"


# -- collisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flows", "says"),
    [
        pytest.param([flow("a>c", provenance=True), flow("b>c", provenance=True)], "both write t on c", id="both tell"),
        pytest.param(
            [flow("a>c"), flow("b>c")], "a>c identity t (t) and b>c identity t (t) both write t on c", id="identity"
        ),
        pytest.param([flow("a>c", ".*"), flow("b>c", "t")], "both write t on c", id="expression and name"),
        pytest.param([flow("a>c"), flow("b>c", policy="{topic}")], "both write t on c", id="only one means it"),
        pytest.param(
            [flow("a>c", "b\\.t"), flow("b>c", policy="default")], "both write b.t on c", id="looks like a hop"
        ),
        pytest.param(
            [flow("a>c", policy="{source}x.{topic}"), flow("b>c", "t", "ax.{topic}")],
            "both write ax.t on c",
            id="by source",
        ),
        pytest.param([flow("a>c"), flow("a>c", ".*")], "its records would arrive twice", id="one source"),
        pytest.param([flow("x>a"), flow("a>b"), flow("b>a")], "both write t on a", id="into a pair"),
        pytest.param([flow("o>a"), flow("o>b"), flow("a>c"), flow("b>c")], "both write t on c", id="diamond"),
        pytest.param(
            [flow("a>b"), flow("b>a"), flow("a>c", policy="all.{topic}"), flow("b>c", policy="all.{topic}")],
            "records could come to all.t on c twice",
            id="a pair that is merged",
        ),
    ],
)
def test_flows_that_meet_in_one_name_without_intent_are_refused(flows: list[Flow], says: str) -> None:
    [refusal] = survey(flows).refusals
    assert says in refusal.problem
    assert refusal.remedy


def test_hops_are_read_from_headers() -> None:
    headers = [("x", b"1"), ("mirrorlake.hop", b"a/t/0/17"), ("mirrorlake.hop", "b/t/1/4"), ("mirrorlake.hop", b"\xff")]
    assert hops(headers) == [Hop("a", "t", 0, 17), Hop("b", "t", 1, 4)]
    assert str(hops(headers)[0]) == "a/t/0/17"
    assert hops(None) == []
    assert hops([("mirrorlake.hop", None), ("mirrorlake.hop", b"a/t/0"), ("mirrorlake.hop", b"a b/t/0/1")]) == []
