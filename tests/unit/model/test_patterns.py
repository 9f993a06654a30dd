"""Topic selections: every spelling, one meaning; what the engines would read differently is refused."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config.schema import NameMatcher
from mirrorlake.config.schema.selection import TopicMatcher
from mirrorlake.model.patterns import (
    DEFAULT_EXCLUDE_TOPICS,
    PatternError,
    TopicPattern,
    parse_patterns,
    shape_of,
    subscribe_pattern,
)

NAME_LETTERS = string.ascii_letters + string.digits + "._-"
names = st.text(NAME_LETTERS, min_size=1, max_size=12)
atoms = st.one_of(
    st.text(string.ascii_lowercase + "_-", min_size=1, max_size=4),
    st.sampled_from(["a.*", r"\.", "[a-c]+", "(a|b)", "a{1,3}", ".", r"\d+", "(?:x|yz)?", "[^.]*", "(?i:Ab)", "a?"]),
)
expressions = st.lists(atoms, min_size=1, max_size=4).map("".join)
look_arounds = st.builds("(?!{}){}".format, atoms, expressions)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("orders, clicks.*", ("orders", "clicks.*")),
        (["orders|a", "b,c"], ("orders", "a", "b", "c")),
        (",, orders ,|", ("orders",)),
        ("orders,orders", ("orders",)),
        ("*", (".*",)),
        ("(a|b)c, d", ("(a|b)c", "d")),
        ("a{1,3}, [,|]x", ("a{1,3}", "[,|]x")),
        ("(?i)abc, d", ("(?i:abc)", "d")),
        (r"\Qa.b*\E, c", (r"a\.b\*", "c")),
        (r"a\,b", (r"a\,b",)),
    ],
)
def test_every_spelling_becomes_one_canonical_value(selection: str | list[str], expected: tuple[str, ...]) -> None:
    assert parse_patterns(selection).expressions == expected


@pytest.mark.parametrize(
    ("selection", "problem", "remedy"),
    [
        ("*.orders", "* repeats nothing (at character 1)", ".*"),
        ("orders*", "dangling star", "orders.*"),
        (r"eu\.*", "dangling star", r"eu\..*"),
        ("+a", "+ repeats nothing", ""),
        (".**", "repeats a repeat", ""),
        ("orders payments", "blank inside a name (at character 7)", "comma"),
        ("(a", "unclosed group (at character 1)", ""),
        ("a)", "unopened )", ""),
        ("[a", "unclosed or empty [", ""),
        ("a{", "{ that is not a repeat", ""),
        ("[a-z&&[^b]]", "'&&' inside [ ]", ""),
        (r"(a)\1", r"\1 is read differently", ""),
        (r"\p{Alpha}", r"\p is read differently", ""),
        ("(?<n>a)", "a group that some engines cannot read", ""),
        ("a\x00", "control character", ""),
        ("", "nothing is selected", "orders"),
        ([], "nothing is selected", "orders"),
    ],
)
def test_a_spelling_that_would_select_something_else_is_refused_with_a_remedy(
    selection: str | list[str], problem: str, remedy: str
) -> None:
    with pytest.raises(PatternError) as caught:
        parse_patterns(selection)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


@given(st.lists(expressions, min_size=1, max_size=4), st.sampled_from([",", "|", " , ", " | ", ",,", "|,"]))
def test_separators_and_lists_are_equivalent(items: list[str], separator: str) -> None:
    assert parse_patterns(separator.join(items)) == parse_patterns(items), "one selection, one meaning"


@given(expressions)
def test_a_canonical_value_is_read_as_itself(expression: str) -> None:
    canonical = parse_patterns(expression)
    assert parse_patterns(list(canonical.expressions)) == canonical


@given(st.lists(expressions, min_size=1, max_size=3), st.lists(expressions, max_size=2), names)
def test_the_matcher_agrees_with_a_full_match_of_python(include: list[str], exclude: list[str], name: str) -> None:
    matcher = NameMatcher(parse_patterns(include), parse_patterns(exclude, required=False))
    expected = any(re.fullmatch(item, name) for item in include) and not any(re.fullmatch(x, name) for x in exclude)
    assert matcher.matches(name) == expected


@given(st.lists(expressions, min_size=1, max_size=3), st.lists(expressions, max_size=2), names)
def test_spark_subscribes_to_exactly_what_the_flow_selects(include: list[str], exclude: list[str], name: str) -> None:
    matcher = TopicMatcher(parse_patterns(include), parse_patterns(exclude, required=False))
    found = re.search(matcher.subscribe_pattern, name) is not None
    assert found == matcher.matches(name), "the lander and the rest must select the same topics"


@given(look_arounds, names)
def test_what_re2_lacks_is_matched_as_java_does(expression: str, name: str) -> None:
    assert NameMatcher(parse_patterns(expression)).matches(name) == bool(re.fullmatch(expression, name))


def test_spark_subscribes_to_the_union_of_all_flows_of_a_source() -> None:
    pattern = subscribe_pattern(
        (parse_patterns("a.*"), parse_patterns("ab")),
        (parse_patterns("b|ab"), TopicPattern()),
        (TopicPattern(), TopicPattern()),
    )
    taken = [name for name in ("a", "ab", "ac", "b", "bb", "xa", "__a") if re.search(pattern, name)]
    assert taken == ["a", "ab", "ac", "b"], "ab is excluded by one flow and selected by the other"
    assert re.search(subscribe_pattern(), "a") is None


@pytest.mark.parametrize(
    "topic",
    [
        "__consumer_offsets",
        ".hidden",
        "mm2-offset-syncs.east.internal",
        "east.checkpoints.internal",
        "A_checkpoints_internal",
        "a-b__checkpoints__internal",
        "mm2-offset-syncs_A_internal",
        "mm2-offset-syncsXAXinternal",
        "mm2-configs-A-internal",
        "mirrorlake.east.central.ledger",
    ],
)
def test_internal_topics_never_match_however_they_are_named(topic: str) -> None:
    matcher = TopicMatcher(parse_patterns(f".*, {re.escape(topic)}"))
    assert not matcher.matches(topic), "KIP-1074: internal topics are not mirrored"
    assert re.search(matcher.subscribe_pattern, topic) is None


@pytest.mark.parametrize(
    "topic",
    [
        "heartbeats",
        "orders.internal",
        "checkpoints.internal",
        "mirrorlake.orders",
    ],
)
def test_ordinary_topics_that_look_internal_match(topic: str) -> None:
    assert TopicMatcher(parse_patterns(".*")).matches(topic), "KIP-1074 narrowed what internal means"


def test_the_default_exclusion_is_mirrormakers() -> None:
    matcher = TopicMatcher(parse_patterns(".*"), DEFAULT_EXCLUDE_TOPICS)
    assert matcher.select(["orders", "orders.replica", "mm2x.internal", "__x"]) == ("orders",)


def test_a_flag_in_the_middle_leaks_into_no_later_item_and_an_evil_expression_is_matched_in_linear_time() -> None:
    assert TopicMatcher(parse_patterns("a(?i)b, c")).select(["aB", "AB", "C", "c"]) == ("aB", "c")
    assert not NameMatcher(parse_patterns("(a+)+b")).matches("a" * 249)


@pytest.mark.parametrize(
    ("selection", "says"),
    [("[z-a]", "range"), ("a{1001}", "repetition"), ("(?<=a.*)b", "behind"), ("(?!x)" + "a" * 500, "exponential")],
)
def test_an_expression_that_no_engine_takes_or_that_may_take_for_ever_is_refused(selection: str, says: str) -> None:
    with pytest.raises(PatternError, match=says):
        NameMatcher(parse_patterns(selection))


@given(expressions, expressions, names)
def test_two_expressions_that_share_a_name_have_shapes_that_meet(left: str, right: str, name: str) -> None:
    if re.fullmatch(left, name) and re.fullmatch(right, name):
        assert shape_of(left).meet(shape_of(right)) is not None, "a cycle must never be overlooked"


@given(names)
def test_the_shape_of_an_escaped_name_is_that_name(name: str) -> None:
    assert shape_of(re.escape(name)).literal == name
