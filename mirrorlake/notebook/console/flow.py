"""Step 2 of the wizard: the flow, with a live preview of what its patterns, names and groups come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from mirrorlake.config.edit.draft import POLICIES, ClusterDraft, Draft, FlowDraft, check_cluster
from mirrorlake.config.edit.preview import preview
from mirrorlake.doctor.try_cluster import group_names, try_cluster
from mirrorlake.errors import MirrorlakeError, UsageError
from mirrorlake.model.patterns import DEFAULT_EXCLUDE_GROUPS, DEFAULT_EXCLUDE_TOPICS
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.desk import Desk, told
from mirrorlake.render import badge, escape, table

_NEW = "a new flow"
_EXCLUDED, _GROUPS_EXCLUDED = str(DEFAULT_EXCLUDE_TOPICS), str(DEFAULT_EXCLUDE_GROUPS)


class FlowPage:
    """The flow of a draft: ends, topics, names on the target, isolation rules and groups.

    Args:
        desk: runs the looks at the source.
        flows: those that the settings have already; the form begins with a new one.
        draft: returns the whole draft, with this form's flow in it.
        changed: is called when the form changed.
    """

    def __init__(
        self, desk: Desk, flows: Iterable[FlowDraft], *, draft: Callable[[], Draft], changed: Callable[[], None]
    ) -> None:
        self._desk = desk
        flow = self._begin = FlowDraft()
        self._flows = {one.called: one for one in flows}
        self._filling = False
        self.chosen = controls.choice("flow-choose", "Flow", [_NEW, *self._flows], _NEW)
        self._draft = draft
        self._changed = changed
        self.topics_there: dict[str, tuple[str, ...]] = {}
        self.groups_there: dict[str, tuple[str, ...]] = {}
        self.source = controls.choice("flow-source", "Source")
        self.target = controls.choice("flow-target", "Target")
        self.name = controls.text("flow-name", "Name", hint="source->target, unless there are several", value=flow.name)
        self.topics = controls.text("flow-topics", "Topics", hint="orders, clicks.*", value=flow.topics)
        exclude = _EXCLUDED if flow.exclude_topics is None else flow.exclude_topics
        self.exclude = controls.text("flow-exclude", "Leave out", value=exclude)
        self.look = controls.button("flow-look", "Look at the source", tip="Read the names of its topics and groups")
        self.preview = controls.html("flow-preview")
        self.policy = controls.choice("flow-policy", "Names on the target", _policies(), flow.policy)
        self.separator = controls.text("flow-separator", "Separator", value=flow.separator, wide=False)
        self.template = controls.text("flow-template", "Template", hint="all.{topic}", value=flow.template)
        self.keep = controls.text("rule-keep", "Only records where", hint="value.region = 'eu'", value=flow.keep)
        self.drop = controls.text("rule-drop", "Not records where", hint="headers['test'] = '1'", value=flow.drop)
        self.mask = controls.text("rule-mask", "Mask members", hint="card, items[*].iban", value=flow.mask)
        self.remove = controls.text("rule-remove", "Remove members", hint="internal.*", value=flow.remove)
        self.sync_groups = controls.switch("flow-sync-groups", "Move inactive groups along", value=flow.sync_groups)
        self.sync_configs = controls.switch("flow-sync-configs", "Topic configurations", value=flow.sync_configs)
        self.sync_acls = controls.switch("flow-sync-acls", "ACLs of the topics", value=flow.sync_acls)
        self.groups = controls.text("flow-groups", "Groups", value=flow.groups)
        without = _GROUPS_EXCLUDED if flow.exclude_groups is None else flow.exclude_groups
        self.exclude_groups = controls.text("flow-exclude-groups", "Groups left out", value=without)
        self.groups_preview = controls.html("groups-preview")
        self.ends = controls.column(self.chosen, self.source, self.target, self.name)
        self.selection = controls.column(self.topics, self.exclude, self.look)
        self.naming = controls.column(self.policy, self.separator, self.template)
        self.isolation = controls.column(self.keep, self.drop, self.mask, self.remove)
        self.followers = controls.column(
            self.groups, self.exclude_groups, self.sync_groups, self.sync_configs, self.sync_acls, self.groups_preview
        )
        self.widget = controls.column(
            self.ends,
            controls.said("<b>Which topics.</b> Names or regular expressions that match the whole name."),
            self.selection,
            controls.said("<b>How they are called on the target.</b>"),
            self.naming,
            self.preview,
            controls.said(
                "<b>What stays behind.</b> Topics that never leave are a cluster's (step 1). Records are kept back or masked "
                "here; the relay keeps the originals."
            ),
            self.isolation,
            controls.said("<b>What follows.</b>"),
            self.followers,
        )
        desk.on_click(self.look, self.on_look)
        self.chosen.observe(desk.guarded(self._fill), "value")
        for field in self._fields():
            field.observe(desk.guarded(self._edited), "value")

    def _fields(self) -> tuple[Any, ...]:
        return (
            *(
                self.source,
                self.target,
                self.name,
                self.topics,
                self.exclude,
                self.policy,
                self.separator,
                self.template,
            ),
            *(self.keep, self.drop, self.mask, self.remove, self.groups, self.exclude_groups),
            *(self.sync_groups, self.sync_configs, self.sync_acls),
        )

    def draft(self) -> FlowDraft:
        """Return the form's content."""
        exclude, without = self.exclude.value.strip(), self.exclude_groups.value.strip()
        return replace(
            self._begin,
            source=self.source.value or "",
            target=self.target.value or "",
            name=self.name.value.strip(),
            topics=self.topics.value.strip(),
            exclude_topics=None if exclude == _EXCLUDED else exclude,
            policy=self.policy.value,
            separator=self.separator.value,
            template=self.template.value.strip(),
            keep=self.keep.value,
            drop=self.drop.value,
            mask=self.mask.value,
            remove=self.remove.value,
            groups=self.groups.value.strip(),
            exclude_groups=None if without == _GROUPS_EXCLUDED else without,
            sync_groups=self.sync_groups.value,
            sync_configs=self.sync_configs.value,
            sync_acls=self.sync_acls.value,
        )

    def offer(self, clusters: dict[str, ClusterDraft]) -> None:
        """Let the ends be chosen among these clusters; nothing is chosen for a person who has not."""
        aliases = list(clusters)
        kafka = [alias for alias, cluster in clusters.items() if cluster.rest.get("kind") != "lake"]
        for field, options, begin in (
            (self.source, aliases, self._begin.source),
            (self.target, kafka, self._begin.target),
        ):
            chosen = field.value or begin
            field.options = [("choose one", ""), *((alias, alias) for alias in options)]
            field.value = chosen if chosen in options else ""
        self.render()

    async def on_look(self) -> None:
        """Read the names of the source's topics and groups, and show what the flow makes of them."""
        alias = self.source.value
        cluster = next((one for one in self._draft().clusters if one.alias == alias), None)
        if cluster is None:
            raise UsageError("no source is chosen", remedy="choose one of the clusters of step 1")
        config = check_cluster(cluster)
        found = await self._desk.ask(try_cluster, config, alias)
        if not found.ok:
            raise UsageError(found.problem, remedy=found.remedy)
        self.topics_there[alias] = found.topics
        self.groups_there[alias] = await self._desk.ask(group_names, config, alias)
        self.render()

    def _fill(self) -> None:
        """Fill the form with the chosen flow."""
        flow = self._begin = self._flows.get(self.chosen.value, FlowDraft())
        self._filling = True
        try:
            ends = [value for _, value in self.source.options]
            self.source.value = flow.source if flow.source in ends else ""
            self.target.value = flow.target if flow.target in [value for _, value in self.target.options] else ""
            self.name.value, self.topics.value = flow.name, flow.topics
            self.exclude.value = _EXCLUDED if flow.exclude_topics is None else flow.exclude_topics
            self.policy.value, self.separator.value, self.template.value = flow.policy, flow.separator, flow.template
            self.keep.value, self.drop.value = flow.keep, flow.drop
            self.mask.value, self.remove.value = flow.mask, flow.remove
            self.groups.value = flow.groups
            self.exclude_groups.value = _GROUPS_EXCLUDED if flow.exclude_groups is None else flow.exclude_groups
            self.sync_groups.value, self.sync_configs.value = flow.sync_groups, flow.sync_configs
            self.sync_acls.value = flow.sync_acls
        finally:
            self._filling = False
        self._edited()

    def _edited(self) -> None:
        if self._filling:
            return
        self.render()
        self._changed()

    def render(self) -> None:
        """Show what the flow makes of the topics and groups that were seen."""
        kind = self.policy.value
        self.template.layout.display = None if kind == "template" else "none"
        self.separator.layout.display = None if kind == "default" else "none"
        alias = self.source.value
        if not (alias and self.target.value and self.topics.value.strip()):
            self.preview.value = "Choose source and target, and name the topics."
            return
        try:
            flow = self._draft().config().flow(self.draft().called)
        except MirrorlakeError as error:
            # Half-typed patterns are faulty all the time: said here, where they are typed, not on the strip.
            self.preview.value = f"{badge('not yet', 'warn').html()} <pre>{escape_lines(told(error))}</pre>"
            return
        there = self.topics_there.get(alias)
        if there is None:
            self.preview.value = "Look at the source to see what this comes to."
            return
        self.preview.value = preview(flow, there).to_html()
        groups = self.groups_there.get(alias, ())
        rows = [(name, _group_word(flow.group_selection.matches(name))) for name in groups]
        self.groups_preview.value = table(f"groups on {alias}", ["group", ""], rows).html() if rows else ""


def escape_lines(text: str) -> str:
    """Return lines for a `pre`, escaped one by one so that they stay lines."""
    return "\n".join(escape(line) for line in text.splitlines())


def _group_word(is_selected: bool) -> object:
    return badge("follows", "good") if is_selected else badge("left out", "off")


def _policies() -> list[tuple[str, str]]:
    words = {
        "default": "default: source.topic",
        "identity": "identity: the same name",
        "template": "a template, which may merge sources",
    }
    return [(words[kind], kind) for kind in POLICIES]
