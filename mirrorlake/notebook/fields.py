"""The fields and buttons of the console and the set-up form, and the work that buttons start.

Every control has the class `ml-<name>`, for styles and for tests in a browser.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ipywidgets as widgets

from mirrorlake.errors import SafetyError
from mirrorlake.notebook.fragments import error_html, error_text
from mirrorlake.render import badge, breakable

_LABEL = {"description_width": "11em"}
_MAX_ERRORS = 5
_CHANGED = f"<p>{badge('changed since', 'warn').html()} Show the plan again.</p>"
T = TypeVar("T")


def _named(widget: Any, name: str) -> Any:
    widget.add_class(f"ml-{name}")
    return widget


def text(name: str, label: str, *, hint: str = "", value: str = "", live: bool = True) -> Any:
    """Return a text field; `live` reports every key, else the text at the end."""
    layout = widgets.Layout(width="46em", max_width="calc(100% - 4px)")
    field = widgets.Text(
        value=value, description=label, placeholder=hint, layout=layout, style=_LABEL, continuous_update=live
    )
    return _named(field, name)


def password(name: str, label: str) -> Any:
    """Return a password field, which reports its content once, when it is left."""
    layout = widgets.Layout(width="46em", max_width="calc(100% - 4px)")
    return _named(widgets.Password(description=label, layout=layout, style=_LABEL, continuous_update=False), name)


def choice(name: str, label: str, options: Sequence[Any] = (), value: Any = None) -> Any:
    options = list(options)
    chosen = value if value is not None or not options else options[0]
    return _named(widgets.Dropdown(options=options, value=chosen, description=label, style=_LABEL), name)


def checkbox(name: str, label: str) -> Any:
    return _named(widgets.Checkbox(value=False, description=label, indent=False), name)


def html(name: str) -> Any:
    """Return a widget for HTML of `mirrorlake.render`, which is escaped."""
    return _named(widgets.HTML(), name)


def figure(name: str) -> Any:
    """Return the area of a plotly figure, set by its `outputs`."""
    return _named(widgets.Output(), name)


def tabs(name: str, contents: Sequence[widgets.Widget], titles: Sequence[str]) -> Any:
    return _named(widgets.Tab(list(contents), titles=tuple(titles), selected_index=0), name)


def row(*children: widgets.Widget) -> Any:
    return widgets.HBox(list(children), layout=widgets.Layout(flex_flow="row wrap"))


def column(*children: widgets.Widget) -> Any:
    return widgets.VBox(list(children))


def close_all(widget: Any) -> None:
    """Close a widget and all below it."""
    for child in getattr(widget, "children", ()):
        close_all(child)
    widget.close()


class ButtonThreads:
    """Run what buttons start on threads, so that the kernel is never blocked, and show every failure until it is cleared."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._threads: list[threading.Thread] = []
        self._shown = html("errors-text")
        clear = _named(widgets.Button(description="Clear", tooltip="Dismiss these messages"), "errors-clear")
        clear.on_click(lambda _: self.clear())
        self.widget = _named(column(self._shown, clear), "errors")
        self.clear()

    def button(self, name: str, label: str, action: Callable[[], None], *, tip: str = "", main: bool = False) -> Any:
        """Return a button that starts an action, and is disabled until it ends; `main` marks one that changes things."""
        layout = widgets.Layout(width="max-content", min_width="7em")
        style = "primary" if main else ""
        button = widgets.Button(description=label, tooltip=tip or label, button_style=style, layout=layout)

        def work() -> None:
            try:
                action()
            except Exception as error:  # nobody above this thread could show it
                self.show(error)
            finally:
                button.disabled = False

        def click(_: Any) -> None:
            # A browser may send a click before it learns that the button is disabled.
            if not button.disabled:
                button.disabled = True
                self.start(work)

        button.on_click(click)
        return _named(button, name)

    def start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="mirrorlake-console", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def wait(self) -> None:
        """Return when all work that was started has ended."""
        for thread in list(self._threads):
            thread.join()

    def show(self, error: BaseException) -> None:
        text = error_text(error)
        self.problems = [text, *(one for one in self.problems if one != text)][:_MAX_ERRORS]
        self._shown.value = "".join(map(error_html, self.problems))
        self.widget.layout.display = None

    def clear(self) -> None:
        self.problems, self._shown.value, self.widget.layout.display = [], "", "none"

    def on_change(self, react: Callable[[], None], *fields: Any) -> None:
        """Call `react` when one of the fields changes; ipywidgets would lose its failure."""

        def observe(_: Any) -> None:
            try:
                react()
            except Exception as error:  # as above
                self.show(error)

        for field in fields:
            field.observe(observe, "value")


class PlanBox:
    """Show a plan, and carry out exactly that plan once its word is typed (law G).

    `carry_out` gets the plan, and returns what was done as HTML.
    """

    def __init__(self, work: ButtonThreads, name: str, label: str, carry_out: Callable[[Any], str]) -> None:
        self._carry_out = carry_out
        self.plan: Any = None
        self.word = ""
        self.shown = html(f"{name}-plan-shown")
        self.typed = text(f"{name}-confirm", "Type the name")
        self.button = work.button(f"{name}-apply", label, self._apply, tip="Carry out the plan above", main=True)
        self._decide = row(self.typed, self.button)
        self.widget = column(self.shown, self._decide)
        self.withdraw()

    def propose(self, inputs: Callable[[], T], make: Callable[[T], tuple[Any, str]]) -> None:
        """Make a plan and its word of the inputs, and show it, unless they change meanwhile.

        It is shown whole: a person cannot agree to hidden rows.
        """
        self.plan, self._decide.layout.display = None, "none"
        self.shown.value = "<p>making the plan …</p>"
        before = inputs()
        try:
            plan, word = make(before)
        except BaseException:
            self.shown.value = ""
            raise
        if inputs() != before:
            self.shown.value = _CHANGED
            return
        self.plan, self.word = plan, word
        self.typed.value, self.typed.placeholder = "", word
        note = f"<p>Nothing was changed so far. Type <b>{breakable(word)}</b> to carry this plan out.</p>"
        self.shown.value = plan.to_html(rows=None) + note
        self._decide.layout.display = None

    def withdraw(self) -> None:
        """Forget the plan: what it was made of has changed."""
        if self.plan is not None:
            self.shown.value = _CHANGED
        self.plan, self._decide.layout.display = None, "none"

    def _apply(self) -> None:
        plan = self.plan
        if plan is None:
            raise SafetyError("no plan is shown", consequence="nothing was changed", remedy="show the plan first")
        if self.typed.value.strip() != self.word:
            remedy = f"type {self.word} beside the button"
            raise SafetyError("the name was not typed", consequence="nothing was changed", remedy=remedy)
        # Once: a second click, or one after a failure, needs a plan of the state then.
        self.plan, self._decide.layout.display = None, "none"
        self.shown.value = "<p>carrying it out …</p>"
        try:
            self.shown.value = self._carry_out(plan)
        except BaseException:
            self.shown.value = f"<p>{badge('failed').html()} Show the plan again.</p>"
            raise
