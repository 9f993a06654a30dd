"""Preview what a flow does with existing topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.model.patterns import INTERNAL_TOPICS, TopicPattern, shape_of
from mirrorlake.model.plan import Note
from mirrorlake.model.policy import name_fault
from mirrorlake.render import Displayable, Sheet, badge, format_count, table

Verdict = Literal["mirrored", "excluded", "never_leaves", "internal", "comes_back", "no_name"]
_WORDS: dict[Verdict, str] = {
    "mirrored": "",
    "excluded": "exclude_topics excludes it",
    "never_leaves": "never_leave keeps it on its cluster",
    "internal": "internal to Kafka, MirrorMaker or mirrorlake",
    "comes_back": "it came from the target",
    "no_name": "Kafka would not accept its name on the target",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPreview:
    topic: str
    verdict: Verdict
    remote: str | None = None

    @property
    def why(self) -> str:
        """Why it is not mirrored; "" if it is."""
        return _WORDS[self.verdict]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FlowPreview(Displayable):
    """The topics of a source that a flow's pattern matches; `others` counts the other topics."""

    flow: str
    topics: tuple[TopicPreview, ...]
    others: int

    @property
    def mirrored(self) -> dict[str, str]:
        """Remote names by source topic."""
        return {one.topic: one.remote for one in self.topics if one.remote is not None}

    def sheet(self) -> Sheet:
        """Show the matched topics, mirrored ones first."""
        ordered = sorted(self.topics, key=lambda one: (one.remote is None, one.topic))
        rows = [
            (one.topic, badge(one.verdict.replace("_", " "), "good" if one.remote else "off"), one.remote or one.why)
            for one in ordered
        ]
        facts = (
            f"{format_count(len(self.mirrored))} mirrored",
            f"{len(self.topics) - len(self.mirrored)} not mirrored",
        )
        left = (f"not matched: {format_count(self.others)} of the source",)
        return Sheet(
            title=self.flow,
            facts=facts,
            parts=(table("", ["topic", "", "name on the target, or why not"], rows), *left),
        )


def preview(flow: FlowConfig, topics: Iterable[str]) -> FlowPreview:
    """Preview what a flow does with topic names; asks no cluster.

    Example:
        >>> from mirrorlake.config.loading import loads
        >>> config = loads('''
        ... lake: {root: ./lake}
        ... clusters: {east: {bootstrap_servers: "e:9092", never_leave: "pii.*"}, west: {bootstrap_servers: "w:9092"}}
        ... flows: [{source: east, target: west, topics: ".*"}]
        ... ''')
        >>> found = preview(config.flows[0], ["orders", "pii-names", "__consumer_offsets"])
        >>> [(one.topic, one.verdict, one.remote) for one in found.topics]
        [('__consumer_offsets', 'internal', None), ('orders', 'mirrored', 'east.orders'), ('pii-names', 'never_leaves', None)]
    """
    names = sorted(set(topics))
    asked, internal = NameMatcher(flow.topics), NameMatcher(INTERNAL_TOPICS)
    excluded = NameMatcher(flow.exclude_topics)

    def judge(topic: str) -> TopicPreview:
        if internal.matches(topic):
            return TopicPreview(topic=topic, verdict="internal")
        if flow.denies(topic):
            return TopicPreview(topic=topic, verdict="never_leaves")
        if excluded.matches(topic):
            return TopicPreview(topic=topic, verdict="excluded")
        if not flow.carries(topic):
            return TopicPreview(topic=topic, verdict="comes_back")
        remote = flow.remote_topic(topic)
        if name_fault(remote):
            return TopicPreview(topic=topic, verdict="no_name")
        return TopicPreview(topic=topic, verdict="mirrored", remote=remote)

    matched = [name for name in names if asked.matches(name)]
    return FlowPreview(flow=flow.name, topics=tuple(map(judge, matched)), others=len(names) - len(matched))


def find_unmirrored(flow: FlowConfig, topics: Iterable[str]) -> tuple[Note, ...]:
    """Find what `topics` of a flow names and a rule takes away, or its source, which has these topics, does not show.

    A pattern may be for topics to come: it is told where the whole flow mirrors nothing.
    """
    names, found = set(topics), dict[str, str]()
    is_idle = not any(map(flow.carries, names))
    for expression in flow.topics.expressions:
        meant = shape_of(expression).meant
        judged = preview(flow, [meant]).topics[0] if meant else None
        if meant and judged and judged.why:
            found[meant] = f"{judged.why}; narrow that rule, or take the name out of `topics`"
        elif is_idle or (meant and meant not in names and not NameMatcher(TopicPattern((expression,))).select(names)):
            name = meant or expression
            found[name] = f"{flow.source} has no topic {name}, or does not show it; correct `topics`, or create it"
    return tuple(Note(where=flow.name, kind="topic", name=name, reason=reason) for name, reason in found.items())
