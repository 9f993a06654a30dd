"""Match the topics and groups that a flow selects.

RE2 matches in time linear in the name for every expression (Python's `re` took 0.9 s on 25 characters for a classic evil one).
Java's look-around and possessive repeats, which RE2 lacks, go to `re`, capped in length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import re2

from mirrorlake.model.patterns import INTERNAL_TOPICS, TopicPattern, subscribe_pattern
from mirrorlake.model.regex import PatternError

_BEYOND_RE2 = re.compile(r"\(\?(?:=|!|<=|<!|>)|(?:[*+?]|\{\d+(?:,\d*)?\})\+")
_LONGEST_BEYOND_RE2 = 500  # characters


@dataclass(frozen=True)
class NameMatcher:
    """Match names by a pair of selections; exclude beats include, and the whole name must match.

    Example:
        >>> NameMatcher(TopicPattern(("app-.*",)), TopicPattern(("app-test",))).matches("app-1")
        True
    """

    include: TopicPattern
    exclude: TopicPattern = field(default_factory=TopicPattern)

    def __post_init__(self) -> None:
        """Compile both selections, so that a fault is raised when they are read.

        Raises:
            PatternError: RE2 refuses an expression, or an expression beyond RE2 is too long or refused by `re`.
        """
        _compiled(self.include)
        _compiled(self.exclude)

    def matches(self, name: str) -> bool:
        """Return whether the name is selected."""
        return _compiled(self.include)(name) and not _compiled(self.exclude)(name)

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the selected names, sorted."""
        return tuple(sorted(name for name in names if self.matches(name)))


@dataclass(frozen=True)
class TopicMatcher(NameMatcher):
    """Match the topics that a flow selects; internal topics never match, even by name (KIP-1074).

    Example:
        >>> TopicMatcher(TopicPattern((".*",))).select(["orders", "__consumer_offsets", "mirrorlake.a.b.ledger"])
        ('orders',)
    """

    def matches(self, name: str) -> bool:
        """Return whether the topic is selected and not internal to Kafka, MirrorMaker or mirrorlake."""
        return super().matches(name) and not _compiled(INTERNAL_TOPICS)(name)

    @property
    def subscribe_pattern(self) -> str:
        """The same selection for Spark's `subscribePattern`."""
        return subscribe_pattern((self.include, self.exclude))


@lru_cache(maxsize=1024)
def _compiled(pattern: TopicPattern) -> Callable[[str], bool]:
    linear = tuple(item for item in pattern.expressions if not _BEYOND_RE2.search(item))
    tests = [_re2_test(item) for item in linear]
    if len(tests) > 1:
        tests = [_re2_test(TopicPattern(linear).java_regex)]
    tests += [_re_test(item) for item in pattern.expressions if item not in linear]
    if len(tests) == 1:
        return tests[0]
    return lambda name: any(test(name) for test in tests)


def _re2_test(expression: str) -> Callable[[str], bool]:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise PatternError(f"'{expression}': {reason}") from None
    return lambda name: compiled.fullmatch(name) is not None


def _re_test(expression: str) -> Callable[[str], bool]:
    if len(expression) > _LONGEST_BEYOND_RE2:
        raise PatternError(
            f"'{expression[:40]}…': {len(expression)} characters with look-around or possessive repeats",
            remedy=f"such expressions take exponential time in the worst case; keep them below {_LONGEST_BEYOND_RE2} characters "
            "or use exclude_topics",
        )
    try:
        compiled = re.compile(expression, re.ASCII)
    except re.error as error:
        raise PatternError(f"'{expression}': {error}") from None
    return lambda name: compiled.fullmatch(name) is not None
