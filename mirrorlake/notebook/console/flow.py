"""Step 2 of the wizard: the flow, with a live preview of its topics, their names and its groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mirrorlake.config.edit import BLANK_FLOW, POLICIES, Draft, flow_name, preview
from mirrorlake.doctor import group_names, try_cluster
from mirrorlake.errors import MirrorlakeError, UsageError
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.error_panel import error_text
from mirrorlake.notebook.console.listing import Act, Entry, Listing
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.view import Panel
from mirrorlake.render import badge, breakable, table

# Typing redraws the preview often; further topics are only counted.
_MAX_SHOWN = 20
_EMPTY = "No flow yet: fill in the form, then go on to step 3."
_AS_TYPED = ("separator", "keep", "drop", "mask", "remove")


class FlowFormView(Panel):
    """A form for a flow of a draft.

    `draft` returns the draft, and `whole` adds the form's flow. `keep` stores the form's flow in the draft, and fills the form by the
    given function.
    """

    def __init__(
        self,
        session: Session,
        *,
        draft: Callable[[], Draft],
        whole: Callable[[], Draft],
        changed: Callable[[], None],
        keep: Callable[[Callable[[], None] | None], None],
        actions: dict[str, Act],
    ) -> None:
        super().__init__(session)
        self.edited = ""
        """The name of the flow that filled the form; empty for a new flow."""
        self._filling = False
        self._draft = draft
        self._whole = whole
        self._changed = changed
        self._keep = keep
        self.topics_there: dict[str, tuple[str, ...]] = {}
        self.groups_there: dict[str, tuple[str, ...]] = {}
        self.list = Listing(self._runner, "flow", actions, empty=_EMPTY)
        self.said = controls.html("flow-said")
        tip = "Keep the form's flow, and empty the form for another one"
        self.new = self.button("flow-new", "New flow", self.on_new, tip=tip)
        tip = "Take the flow into the draft settings"
        self.add = self.button("flow-keep", "Add or change", self.on_keep, tip=tip, main=True)
        self.discard = self.button("flow-discard", "Discard", self.on_discard, tip="Empty the form")
        self.added = controls.html("flow-added")
        self.title = controls.html("flow-form")
        self.taken = controls.html("flow-taken")
        self.use_free = self.button("flow-use-free", "Use another name", self.on_use_free)
        self.source = controls.dropdown("flow-source", "Source")
        self.target = controls.dropdown("flow-target", "Target")
        self.name = controls.text("flow-name", "Name", hint="source->target, unless there are several")
        self.topics = controls.text("flow-topics", "Topics", hint="orders, clicks.*")
        self.exclude = controls.text("flow-exclude", "Exclude topics")
        tip = "Read the names of its topics and groups"
        self.look = self.button("flow-look", "Read the source", self.on_look, tip=tip)
        self.preview = controls.html("flow-preview")
        self.policy = controls.dropdown("flow-policy", "Names on the target", _policies(), POLICIES[0])
        self.separator = controls.text("flow-separator", "Separator", wide=False)
        self.template = controls.text("flow-template", "Template", hint="all.{topic}")
        self.keep = controls.text("rule-keep", "Keep records where", hint="value.region = 'eu'")
        self.drop = controls.text("rule-drop", "Drop records where", hint="headers['test'] = '1'")
        self.mask = controls.text("rule-mask", "Mask members", hint="card, items[*].iban")
        self.remove = controls.text("rule-remove", "Remove members", hint="internal.*")
        self.sync_groups = controls.checkbox("flow-sync-groups", "Sync inactive groups")
        self.sync_configs = controls.checkbox("flow-sync-configs", "Sync topic configurations")
        self.sync_acls = controls.checkbox("flow-sync-acls", "Sync topic ACLs")
        self.groups = controls.text("flow-groups", "Groups")
        self.exclude_groups = controls.text("flow-exclude-groups", "Exclude groups")
        self.groups_preview = controls.html("groups-preview")
        self.ends = controls.column(self.source, self.target, self.name, self.taken, self.use_free)
        self.selection = controls.column(self.topics, self.exclude, self.look)
        self.naming = controls.column(self.policy, self.separator, self.template)
        self.isolation = controls.column(self.keep, self.drop, self.mask, self.remove)
        self.followers = controls.column(
            self.groups, self.exclude_groups, self.sync_groups, self.sync_configs, self.sync_acls, self.groups_preview
        )
        self.widget = controls.column(
            self.list.widget,
            self.said,
            self.new,
            self.title,
            self.ends,
            controls.paragraph("<b>Which topics.</b> Names or regular expressions that match the whole name."),
            controls.beside(controls.column(self.selection, self.naming), self.preview),
            controls.paragraph(
                "<b>What is kept back.</b> Topics that never leave are set on a cluster (step 1). Records are kept back or "
                "masked here; the relay keeps the originals."
            ),
            self.isolation,
            controls.paragraph("<b>What is synced.</b>"),
            self.followers,
            controls.buttons(self.add, self.discard, self.added),
        )
        self._inputs = {
            **{name: getattr(self, name) for name in ("source", "target", "name", "topics", "policy", "separator")},
            **{name: getattr(self, name) for name in ("template", "keep", "drop", "mask", "remove", "groups")},
            **{name: getattr(self, name) for name in ("exclude_groups", "sync_groups", "sync_configs", "sync_acls")},
            "exclude_topics": self.exclude,
        }
        self._render_later = self._runner.debounced(self.render)
        self._show(BLANK_FLOW)
        self._shown = self.fields()
        self.on_change(self._edited, *self._inputs.values())

    def fields(self) -> dict[str, Any]:
        return {name: self._typed(name) for name in self._inputs}

    @property
    def is_edited(self) -> bool:
        return self.fields() != self._shown

    @property
    def free_name(self) -> str | None:
        """A free name if another flow has the form's; None otherwise."""
        return self._draft().free_name(self.fields(), of=self.edited)

    def _typed(self, name: str) -> Any:
        value = self._inputs[name].value
        if isinstance(value, str) and name not in _AS_TYPED:
            value = value.strip()
        return "" if value is None else value

    def _show(self, fields: Mapping[str, Any]) -> None:
        """Show a flow in the form; a removed cluster is not chosen as an end."""
        for name, field in self._inputs.items():
            value = fields[name]
            if name in ("source", "target"):
                ends = [end for _, end in field.options]
                value = value if value in ends else "" if ends else None
            field.value = value

    def offer(self) -> None:
        """Offer the draft's clusters as ends; nothing is chosen for the person."""
        draft = self._draft()
        begin = draft.flows.get(self.edited, BLANK_FLOW)
        kafka = [alias for alias in draft.clusters if alias not in draft.lakes]
        for end, field, options in (("source", self.source, [*draft.clusters]), ("target", self.target, kafka)):
            chosen = field.value or begin[end]
            field.options = [("choose one", ""), *((alias, alias) for alias in options)]
            field.value = chosen if chosen in options else ""
        self.render()

    async def on_look(self) -> None:
        alias = self.source.value
        if not alias:
            raise UsageError("no source is chosen", remedy="choose one of the clusters of step 1")
        config = self._draft().cluster(alias)
        found = await self._runner.ask(try_cluster, config, alias)
        if not found.ok:
            raise UsageError(found.problem, remedy=found.remedy)
        self.topics_there[alias] = found.topics
        self.groups_there[alias] = await self._runner.ask(group_names, config, alias)
        self.render()

    def open(self, edited: str = "", *, name: str | None = None) -> None:
        """Fill the form with a flow or empty it, under another name if one is given; discard its previous content."""
        self.edited, self._filling = edited, True
        try:
            self._show(self._draft().flows.get(edited, BLANK_FLOW))
            if name is not None:
                self.name.value = name
        finally:
            self._filling = False
        self._shown = self.fields()
        self.added.value = ""
        word = f"{'Edit' if name is None else 'Copy of'} {breakable(edited)}" if edited else "A new flow"
        self.title.value = f"<b>{word}</b>"
        self.update_controls()
        self.render()

    def rebase(self) -> None:
        """Make the form's content a change of its flow in the new draft."""
        fields = self.fields()
        self.open(self.edited if self.edited in self._draft().flows else "")
        self._show(fields)

    def show(self, entries: Sequence[Entry], said: str = "") -> None:
        self.list.show(entries)
        self.said.value = said

    async def on_new(self) -> None:
        self._keep(self.open)

    async def on_keep(self) -> None:
        name = flow_name(self.fields())
        self._keep(None)
        self.added.value = (
            f"{badge('in the draft', 'good').html()} {breakable(name)}: go on to its review, or add another."
        )

    async def on_discard(self) -> None:
        self.open()
        self._changed()

    async def on_use_free(self) -> None:
        if (free := self.free_name) is not None:
            self.name.value = free

    def _edited(self) -> None:
        if self._filling:
            return
        self.added.value = ""
        self.update_controls()
        self._render_later()
        self._changed()

    def update_controls(self) -> None:
        """Show at once that the name is taken, with a free name, or that another name makes a copy."""
        free, typed, was = self.free_name, flow_name(self.fields()), self.edited
        self.use_free.layout.display = None if free else "none"
        self.add.allow("another flow has this name" if free else "")
        self.taken.value = ""
        if free:
            self.use_free.description = f"Use {free}"
            self.taken.value = (
                f"{badge('taken', 'warn').html()} {breakable(typed)} is a flow already: press Edit beside it to change it, "
                "or give this one a name of its own."
            )
        elif was and typed != was:
            self.taken.value = f"Another name is another flow with a ledger of its own: {breakable(was)} stays."

    def render(self) -> None:
        kind = self.policy.value
        self.template.layout.display = None if kind == "template" else "none"
        self.separator.layout.display = None if kind == "default" else "none"
        alias = self.source.value
        if not (alias and self.target.value and self.topics.value.strip()):
            self.preview.value = "Choose source and target, and name the topics."
            return
        try:
            flow = self._whole().config().flow(flow_name(self.fields()))
        except MirrorlakeError as error:
            # Half-typed patterns are often invalid: the error appears beside the field, not on the panel.
            self.preview.value = f"{badge('not yet', 'warn').html()} {controls.code(error_text(error))}"
            return
        there = self.topics_there.get(alias)
        if there is None:
            self.preview.value = "Read the source to see which topics match."
            return
        self.preview.value = preview(flow, there).to_html(rows=_MAX_SHOWN)
        groups = self.groups_there.get(alias, ())
        follows, left_out = badge("follows", "good"), badge("left out", "off")
        rows = [(name, follows if flow.group_selection.matches(name) else left_out) for name in groups]
        shown = table(f"groups on {alias}", ["group", ""], rows)
        self.groups_preview.value = shown.html(rows=_MAX_SHOWN) if rows else ""


def _policies() -> list[tuple[str, str]]:
    words = {
        "default": "default: source.topic",
        "identity": "identity: the same name",
        "template": "a template, which may merge sources",
    }
    return [(words[kind], kind) for kind in POLICIES]
