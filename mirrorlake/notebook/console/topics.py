"""The topic browser: a cluster's topics, mirrored or why not; chosen topics become those of a flow."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial

from mirrorlake.config.edit import Draft
from mirrorlake.config.schema import NameMatcher
from mirrorlake.errors import UsageError
from mirrorlake.kafka import ClusterAdmin, librdkafka_options
from mirrorlake.model.patterns import PatternError, parse_patterns
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.grid import Cell, Column, Grid, Row
from mirrorlake.notebook.console.pulse import Pulse, Reading
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel
from mirrorlake.render import badge, breakable, format_count, link, plural
from mirrorlake.topics import TopicLine, TopicList, list_topics, partition_counts

COLUMNS = (
    Column("topic", "Topic"),
    Column("partitions", "Partitions", kind="number"),
    Column("mirrored", "Mirrored", kind="prose", help="Where to, or where from, or why not"),
)


def pattern_of(chosen: Collection[str], names: Collection[str]) -> str:
    r"""Return chosen topics as a flow's selection that matches no other name.

    >>> pattern_of(["orders", "a.b"], ["orders", "a.b", "clicks"]), pattern_of(["a.b"], ["a.b", "axb"])
    ('a.b, orders', 'a\\.b')
    """
    others = [name for name in names if name not in chosen]
    return ", ".join(
        topic.replace(".", r"\.") if any(re.fullmatch(topic, name) for name in others) else topic
        for topic in sorted(chosen)
    )


class TopicsView(Panel):
    """`draft` returns the settings being set up; `choose` passes a cluster and a selection of its topics to the set-up form."""

    def __init__(self, session: Session, *, draft: Callable[[], Draft], choose: Callable[[str, str], None]) -> None:
        super().__init__(session)
        self._draft = draft
        self._choose = choose
        self.found: TopicList | None = None
        self._reading = Reading()
        self.pulse = Pulse("topics-fresh", now=session.now)
        self.cluster = controls.dropdown("topics-cluster", "Cluster")
        tip = "Ask the cluster; changes nothing"
        self.look = self.button("topics-look", "Read the topics", self.on_look, tip=tip, main=True)
        self.matching = controls.text("topics-matching", "Matching", hint="orders, clicks.*")
        self.internal = controls.checkbox("topics-internal", "Internal topics, too")
        self.matches = controls.html("topics-matches")
        self.rows = Grid(
            "topics-rows",
            COLUMNS,
            label="Topics",
            least=("partitions",),
            select="many",
            follow=session.follow,
            empty="Choose a cluster and read its topics.",
            file="topics.csv",
        )
        tip = "Make them the topics of a flow, in Set up"
        self.use = self.button("topics-use", "Mirror these topics", self.on_use, tip=tip)
        self.widget = controls.column(
            controls.row(self.cluster, self.look, self.pulse),
            controls.row(self.matching, self.internal),
            self.matches,
            self.rows,
            controls.buttons(self.use),
        )
        self.on_change(self._forget, self.cluster)
        self.on_change(self.render, self.matching, self.internal)
        self.on_change(self.update_controls, self.rows, trait="selected")
        self.offer()
        self.update_controls()

    def offer(self) -> None:
        mirror = self._session.mirror
        aliases = dict.fromkeys([*(mirror.config.clusters if mirror is not None else ()), *self._draft().clusters])
        if list(self.cluster.options) != list(aliases):
            controls.refill(self.cluster, list(aliases))

    async def on_look(self) -> None:
        alias, now, kept = self.cluster.value, self._session.now, self._reading
        topics = self._asked()
        self.pulse.show(Reading(kept.value, kept.at, asking_since=now()))
        try:
            found: TopicList = await self._runner.ask(topics)
        except BaseException:
            self.pulse.show(kept)
            raise
        if alias != self.cluster.value:
            # Another cluster was chosen meanwhile.
            return
        self.found = found
        self._reading = Reading(found, now())
        self.pulse.show(self._reading)
        self.render()

    async def on_use(self) -> None:
        names = [line.topic for line in self.found or ()]
        chosen = self.rows.selected
        self._choose(self.cluster.value, pattern_of(chosen, names) if chosen else self.matching.value.strip())

    async def open_topic(self, cluster: str, topic: str) -> None:
        if cluster not in self.cluster.options:
            raise UsageError(
                f"there is no cluster {cluster}", remedy=f"choose one of {', '.join(self.cluster.options)}"
            )
        self.cluster.value = cluster
        await self.on_look()
        self.rows.selected = [topic] if any(line.topic == topic for line in self.found or ()) else []

    def _asked(self) -> Callable[[], TopicList]:
        """Return the reader of the chosen cluster's topics: the mirror's, or the set-up form's for a new cluster."""
        alias, mirror = self.cluster.value, self._session.mirror
        if alias is None:
            raise UsageError("no cluster is chosen", remedy="add one in Set up first")
        if mirror is not None and alias in mirror.config.clusters:
            return partial(mirror.topics, alias, internal=True)
        cluster = self._draft().cluster(alias)
        if cluster.is_lake:
            raise UsageError(
                f"{alias} is a lake cluster", remedy="apply a flow from it first: it has no brokers to ask"
            )
        admin = ClusterAdmin(alias, librdkafka_options(cluster, role="admin"), probes=True)
        return lambda: list_topics(alias, partition_counts(admin), flows=(), names_of=lambda _: (), internal=True)

    def _forget(self) -> None:
        self.found, self.matches.value, self._reading = None, "", Reading()
        self.pulse.show(self._reading)
        self.rows.show([])
        self.update_controls()

    def render(self) -> None:
        if self.found is None:
            return
        lines, text = (
            [line for line in self.found if self.internal.value or not line.internal],
            self.matching.value.strip(),
        )
        hidden = len(self.found) - len(lines)
        try:
            matcher = NameMatcher(parse_patterns(text)) if text else None
        except PatternError as error:
            # Half-typed patterns are often invalid.
            self.matches.value = f"{badge('not yet', 'warn').html()} {breakable(error.problem)}"
            return
        matched = [line for line in lines if matcher is None or matcher.matches(line.topic)]
        said = (
            f"{format_count(len(matched))} of {plural(len(lines), 'topic')} match"
            if matcher
            else plural(len(lines), "topic")
        )
        self.matches.value = breakable(said + (f"; {plural(hidden, 'internal topic')} not shown" if hidden else ""))
        self.rows.empty = "No topic matches." if lines else "The cluster has no topic."
        self.rows.show([_row(line, self.cluster.value) for line in matched])
        self.update_controls()

    def update_controls(self) -> None:
        chosen = len(self.rows.selected)
        is_known = chosen or (self.found and self.matching.value.strip())
        self.use.allow("" if is_known else "tick topics, or write a pattern above")


def _row(line: TopicLine, cluster: str) -> Row:
    others = [link("topic", one.cluster, one.other) for one in line.mirrorings if one.other]
    there = others[0] if len(others) == 1 else ""
    mirrored = badge(line.mirrored, "good") if line.is_mirrored else None
    return Row(
        line.topic,
        {
            "topic": Cell(line.topic, link=link("topic", cluster, line.topic)),
            "partitions": line.partitions,
            "mirrored": Cell(line.mirrored, badge=mirrored, link=there),
        },
    )
