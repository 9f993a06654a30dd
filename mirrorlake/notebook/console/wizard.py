"""The set-up wizard: clusters, flow, review; three steps that share one draft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ipywidgets as widgets

from mirrorlake.config.edit import Draft
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.clusters import ClustersView
from mirrorlake.notebook.console.flow import FlowFormView
from mirrorlake.notebook.console.review import ReviewView
from mirrorlake.notebook.console.session import Session

STEPS = ("1 Clusters", "2 Flow", "3 Review and apply")


class Wizard:
    """Set a flow up, from nothing or beside what a settings file has; `applied` gets the mirror whose plan was applied."""

    def __init__(self, session: Session, begin: Draft, *, applied: Callable[[Mirror], None]) -> None:
        self._begin = begin
        self.clusters = ClustersView(session, begin.clusters, self._clusters_changed)
        self.flow = FlowFormView(session, begin.flows, draft=self.draft, changed=self._changed)
        self.review = ReviewView(session, draft=self.draft, applied=applied, root=begin.root or "./lake")
        self.steps = widgets.Tab([self.clusters.widget, self.flow.widget, self.review.widget], titles=STEPS)
        self.steps.add_class("ml-steps")
        self.widget = controls.column(self.steps)
        self.widget.add_class("ml-wizard")
        self.flow.offer(self.clusters.clusters)

    def draft(self) -> Draft:
        """Return the whole draft as it is filled in now."""
        return replace(
            self._begin,
            clusters=tuple(self.clusters.clusters.values()),
            flow=self.flow.draft(),
            root=self.review.root.value.strip(),
        )

    def _clusters_changed(self) -> None:
        self.flow.offer(self.clusters.clusters)
        self._changed()

    def _changed(self) -> None:
        self.review.forget()
