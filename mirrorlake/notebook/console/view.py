"""The base of the console's views: controls, and what their clicks and changes do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import ipywidgets as widgets

from mirrorlake.errors import SafetyError
from mirrorlake.notebook.console import controls
from mirrorlake.notebook.console.session import Session
from mirrorlake.notebook.console.task_runner import Action

T = TypeVar("T")


class Panel:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._runner = session.runner

    def update_controls(self) -> None:
        """Enable and disable the controls by the view's state; runs after each action."""

    def button(
        self, name: str, label: str, action: Action, *, tip: str = "", main: bool = False, changes: bool = False
    ) -> controls.Button:
        """Return a button that starts an action; one that `changes` things is refused in a read-only console."""
        if changes and self._session.read_only:
            refused = controls.refused_button(name, label, why=self._session.read_only)
            # A page may send a click all the same.
            refused.on_click(lambda _: self._session.refuse())
            return refused
        made = controls.button(name, label, tip=tip, main=main)
        self._runner.on_click(made, action, then=self.update_controls)
        return made

    def on_change(self, react: Callable[[], None], *fields: widgets.Widget, trait: str = "value") -> None:
        for field in fields:
            field.observe(self._runner.guarded(react), trait)


class FlowPanel(Panel):
    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session)
        self.flow = controls.dropdown(f"{name}-flow", "Flow")

    def offer(self) -> None:
        controls.refill(self.flow, self._session.flow_names)


def require_shown(shown: T | None, *, first: str) -> T:
    """Return what a person was shown to agree to; without it, refuse: `first` is to be done."""
    if shown is None:
        raise SafetyError("no plan is shown", consequence="nothing was changed", remedy=first)
    return shown


def require_typed(field: widgets.Text, word: str, *, beside: str) -> None:
    if not is_typed(field, word):
        remedy = f"type {word} beside {beside}"
        raise SafetyError("the name was not typed", consequence="nothing was changed", remedy=remedy)


def is_typed(field: widgets.Text, word: str | None) -> bool:
    return bool(word) and field.value.strip() == word
