"""The set-up wizard: clusters, flow, review, run; four steps that share one draft.

The draft starts with the settings file, collects changes, and restarts with the applied settings, so that no change is lost
to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ipywidgets as widgets

from mirrorlake.config import usual_settings
from mirrorlake.config.edit import BLANK_FLOW, Draft, flow_name, stays_after
from mirrorlake.errors import MirrorlakeError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.clusters import ClustersView
from mirrorlake.notebook.console.flow import FlowFormView
from mirrorlake.notebook.console.listing import Entry
from mirrorlake.notebook.console.pulse import Reading
from mirrorlake.notebook.console.review import Reviewed, ReviewView
from mirrorlake.notebook.console.run import RunView
from mirrorlake.notebook.console.session import Session
from mirrorlake.render import badge, breakable, brief, plural

STEPS = ("1 Clusters", "2 Flow", "3 Review and apply", "4 Run")
_FLOW, _RUN = 1, 3


class Wizard:
    """`begin` is the draft of the settings file, or an empty one; `read` the file's text with secrets, None without a file."""

    def __init__(
        self,
        session: Session,
        begin: Draft,
        *,
        applied: Callable[[Mirror], None],
        read: str | None = None,
        status: Callable[[], Reading] = Reading,
    ) -> None:
        self._session = session
        self.kept = self._before = begin
        """The settings with all additions, changes and copies; removed flows are still in them."""
        self._adopt = applied
        self._removed: tuple[str, ...] = ()
        self._in_force: frozenset[str] = frozenset()
        path = begin.path or usual_settings()
        self.clusters = ClustersView(
            session, draft=lambda: self.kept, keep=self._keep_clusters, used_by=self._flows_between
        )
        self.flow = FlowFormView(
            session,
            draft=lambda: self.kept,
            whole=self.draft,
            changed=self._changed,
            keep=self.keep,
            actions={
                "Edit": self.on_edit,
                "Copy": self.on_copy,
                "Remove": self.on_remove,
                "Put back": self.on_put_back,
            },
        )
        self.review = ReviewView(
            session, draft=self.draft, scope=self.scope, applied=self._was_applied, path=path, begin=begin, read=read
        )
        self.review.reread = self._read_again
        self.run = RunView(session, review=self.review, status=status)
        views = [self.clusters.widget, self.flow.widget, self.review.widget, self.run.widget]
        self.steps = widgets.Tab(views, titles=STEPS)
        self.steps.add_class("ml-steps")
        self.back = controls.button("wizard-back", "", tip="To the step before; nothing typed is lost")
        self.next = controls.button("wizard-next", "", tip="To the next step; nothing typed is lost")
        self.back.on_click(lambda _: self._step(-1))
        self.next.on_click(lambda _: self._step(1))
        self.steps.observe(session.runner.guarded(self._name_steps), "selected_index")
        self._name_steps()
        self.widget = controls.column(self.steps, controls.row(self.back, self.next))
        self.widget.add_class("ml-wizard")
        self.flow.offer()
        self.flow.open()
        self._list()

    def _step(self, by: int) -> None:
        self.steps.selected_index = min(max(0, (self.steps.selected_index or 0) + by), _RUN)

    def _name_steps(self) -> None:
        at = self.steps.selected_index or 0
        for button, to, label in ((self.back, at - 1, "◀ Back: {}"), (self.next, at + 1, "Next: {} ▶")):
            is_there = 0 <= to <= _RUN
            button.description = label.format(STEPS[to]) if is_there else ""
            button.layout.display = None if is_there else "none"

    def draft(self) -> Draft:
        draft = self.kept.without_flows(self._removed)
        if self.review.has_root:
            draft = draft.with_root(self.review.root.value.strip())
        return replace(draft.with_flow(self.flow.fields(), of=self.flow.edited), path=self.review.file)

    def scope(self) -> tuple[str, ...]:
        """Return the names of the reviewed flows: new, changed and removed flows, and the form's."""
        self._require_free_name()
        found, form = dict.fromkeys(self._changes()), self.flow.fields()
        if self.flow.edited or form != BLANK_FLOW:
            found[flow_name(form)] = None
        return tuple(found)

    def keep(self, fill: Callable[[], None] | None = None) -> None:
        """Store the form's flow in the draft if it was edited, then `fill` the form; without `fill`, show the same flow.

        The list is drawn last: a flow that appears there implies a final form.
        """
        kept = self._take() if self.flow.is_edited else None
        if fill is not None:
            fill()
        elif kept is not None:
            self.flow.open(kept)
        if kept is not None:
            self._list()
            self.review.forget()

    def _take(self) -> str:
        self._require_free_name()
        fields = self.flow.fields()
        draft = self.kept.with_flow(fields, of=self.flow.edited)
        try:
            draft.config()
        except MirrorlakeError as error:
            raise UsageError(
                f"the flow in the form cannot be taken: {error}",
                consequence="it stays in the form",
                remedy="mend it, or press Discard",
            ) from error
        self.kept = draft
        return flow_name(fields)

    def _require_free_name(self) -> None:
        if (free := self.flow.free_name) is not None:
            raise UsageError(
                f"{flow_name(self.flow.fields())} is a flow of these settings already",
                consequence="the form stays as it is",
                remedy=f"name the one of step 2 otherwise, such as {free}, or press Edit beside the other",
            )

    def take_topics(self, cluster: str, topics: str) -> None:
        """Make a cluster's topics those of the form's new flow, and show it; store the form's edited flow first."""
        if self.flow.edited:
            self.keep(self.flow.open)
        if cluster in [value for _, value in self.flow.source.options]:
            self.flow.source.value = cluster
        self.flow.topics.value = topics
        self.steps.selected_index = _FLOW

    async def on_edit(self, name: str) -> None:
        self.keep(lambda: self.flow.open(name))

    async def on_copy(self, name: str) -> None:
        self.keep(lambda: self.flow.open(name, name=self.kept.free_name(self.kept.flows[name])))

    async def on_remove(self, name: str) -> None:
        """Remove a flow from the draft; nothing is deleted on the clusters or in the lake."""
        if self.flow.edited == name:
            self.flow.open()
        else:
            self.keep()
        self._removed = (*self._removed, name)
        self._list()
        self._changed()

    async def on_put_back(self, name: str) -> None:
        self._removed = tuple(one for one in self._removed if one != name)
        self._list()
        self._changed()

    def _flows_between(self, alias: str) -> list[str]:
        flows = self.kept.flows.items()
        return [name for name, one in flows if alias in (one["source"], one["target"]) and name not in self._removed]

    def _changes(self) -> dict[str, str]:
        before = self._before.flows
        found = {}
        for name, fields in self.kept.flows.items():
            if name in self._removed:
                found[name] = "removed"
            elif name not in before:
                found[name] = "new"
            elif fields != before[name]:
                found[name] = "changed"
        return found

    def _list(self) -> None:
        changes = self._changes()
        entries = []
        for name, fields in self.kept.flows.items():
            change = changes.get(name)
            mark = badge(f"{change}, not applied yet", "warn") if change else badge("in the settings", "off")
            if not change and name in self._in_force:
                mark = badge("applied")
            said = f"<b>{breakable(name)}</b> {breakable(brief(fields['topics'], 60))} {mark.html()}"
            actions = ("Put back",) if change == "removed" else ("Edit", "Copy", "Remove")
            entries.append(Entry(name, said, actions))
        self.flow.show(entries, "".join(map(self._stays, self._removed)))

    def _stays(self, name: str) -> str:
        text = stays_after(self.kept.flow(name))
        lines = "".join(f"<div>{breakable(line)}</div>" for line in text.splitlines())
        return (
            f"<p><b>{breakable(name)}</b> is taken out of the settings with the next Apply, and a running mirror then stops "
            f"it.</p>{lines}"
        )

    def _was_applied(self, reviewed: Reviewed) -> None:
        """Start the next draft with the applied settings; text typed meanwhile stays in the form."""
        untouched = self.draft() == reviewed.draft
        self.kept = self._before = Draft.of(reviewed.config.text, path=reviewed.draft.path)
        self._removed = ()
        self._in_force |= {reviewed.flow} if reviewed.flow else self.kept.flows.keys()
        if untouched:
            self.clusters.render()
            self.flow.open()
        self._list()
        self._adopt(self._session.open(reviewed.config))
        done = plural(len(reviewed.plan), "change")
        then = (
            "A run that is under way takes it once it is saved."
            if self.run.current
            else "Now run it, here or elsewhere."
        )
        self.run.offer(f"{badge('applied').html()} {done} to {breakable(reviewed.word)}. {then}")
        self.steps.selected_index = _RUN

    def _read_again(self, text: str, path: Path) -> None:
        """Start the draft with the file's present text; the form becomes a change of it."""
        self.kept = self._before = Draft.of(text, path=path)
        self._removed = ()
        self.clusters.render()
        self.flow.rebase()
        self._list()
        self._changed()

    def _keep_clusters(self, draft: Draft) -> None:
        self.kept = draft
        self.flow.offer()
        self._changed()

    def _changed(self) -> None:
        self.review.forget()
