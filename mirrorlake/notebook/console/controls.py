"""The console's kinds of controls, each with the class by which tests and styles select it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import ipywidgets as widgets
import traitlets

from mirrorlake.render import OPENS, breakable, escape

_LINK = '<span class="ml-opens" role="link" tabindex="0"'
_WIDE = "46em"
_NARROW = "24em"
# Fields have a margin.
_MAX = "calc(100% - 4px)"
# The longest label is "Names on the target"; a shortened label cannot be read.
_LABEL = {"description_width": "13em"}


def text(
    name: str, label: str, *, hint: str = "", value: str = "", wide: bool = True, live: bool = True
) -> widgets.Text:
    """Return a text field; `live` reports every key, else the text at the end."""
    layout = widgets.Layout(width=_WIDE if wide else _NARROW, max_width=_MAX)
    field = widgets.Text(
        value=value, description=label, placeholder=hint, layout=layout, style=_LABEL, continuous_update=live
    )
    return _named(field, name)


def password(name: str, label: str) -> widgets.Password:
    """Return a password field, which reports its content once, when it is left."""
    layout = widgets.Layout(width=_WIDE, max_width=_MAX)
    return _named(widgets.Password(description=label, layout=layout, style=_LABEL, continuous_update=False), name)


def integer(name: str, label: str, *, value: int = 0, least: int = 0, most: int = 2**53) -> widgets.BoundedIntText:
    layout = widgets.Layout(width=_NARROW, max_width=_MAX)
    field = widgets.BoundedIntText(value=value, min=least, max=most, description=label, layout=layout, style=_LABEL)
    return _named(field, name)


def dropdown(name: str, label: str, options: Sequence[Any] = (), value: Any = None) -> widgets.Dropdown:
    layout = widgets.Layout(width=_WIDE, max_width=_MAX)
    options = list(options)
    field = widgets.Dropdown(options=options, value=value, description=label, layout=layout, style=_LABEL)
    return _named(field, name)


def combobox(name: str, label: str, *, hint: str = "") -> widgets.Combobox:
    layout = widgets.Layout(width=_WIDE, max_width=_MAX)
    return _named(widgets.Combobox(description=label, placeholder=hint, layout=layout, style=_LABEL), name)


def toggles(name: str, label: str, options: Sequence[Any]) -> widgets.ToggleButtons:
    field = widgets.ToggleButtons(options=list(options), description=label, style={"button_width": "auto"})
    return _named(field, name)


def checkbox(name: str, label: str, *, value: bool = False) -> widgets.Checkbox:
    layout = widgets.Layout(width="max-content", max_width=_MAX)
    return _named(widgets.Checkbox(value=value, description=label, indent=False, layout=layout), name)


class Button(widgets.Button):  # type: ignore[misc]  # ipywidgets has no annotations
    """A button that says why it is grey, on hovering and, among `buttons`, beside it."""

    def __init__(self, label: str, tip: str, *, style: str = "") -> None:
        layout = widgets.Layout(width="max-content", min_width="7em")
        super().__init__(description=label, tooltip=tip, button_style=style, layout=layout)
        self._tip = tip

    @property
    def why(self) -> str:
        """Why the button is grey; "" if it is not, or while its action runs."""
        return str(self.tooltip) if self.disabled and self.tooltip != self._tip else ""

    def allow(self, why_not: str = "") -> None:
        self.tooltip = why_not or self._tip
        self.disabled = bool(why_not)


class _RefusedButton(Button):
    """A button that neither its view nor a page can enable."""

    @traitlets.validate("disabled")
    def _stay_disabled(self, _: Any) -> bool:
        return True

    def allow(self, why_not: str = "") -> None: ...


def button(name: str, label: str, *, tip: str = "", main: bool = False) -> Button:
    """Return a button; `main` marks a button that changes a cluster or continues."""
    return cast(Button, _named(Button(label, tip or label, style="primary" if main else ""), name))


def refused_button(name: str, label: str, *, why: str) -> Button:
    made = _RefusedButton(label, "")
    made.tooltip, made.disabled = why, True
    return cast(Button, _named(made, name))


def buttons(*children: widgets.Widget) -> widgets.VBox:
    """Return controls side by side, and below them why some buttons are grey."""
    said, known = widgets.HTML(), [child for child in children if isinstance(child, Button)]

    def say(_: Any = None) -> None:
        whys: dict[str, list[str]] = {}
        for one in known:
            if one.why and one.layout.display != "none":
                whys.setdefault(one.why, []).append(one.description)
        lines = [breakable(f"{', '.join(names)}: {why}") for why, names in whys.items()]
        said.value = "".join(f"<div><i>{line}</i></div>" for line in lines)
        said.layout.display = None if lines else "none"

    for one in known:
        one.observe(say, ["disabled", "tooltip"])
        one.layout.observe(say, "display")
    say()
    return column(row(*children), _named(said, "why-grey"))


class _Html(widgets.HTML):  # type: ignore[misc]  # as above
    @traitlets.validate("value")
    def _mark_links(self, proposal: Any) -> str:
        # Foreign text is escaped: no tag is its own.
        return str(proposal["value"]).replace(f"<span {OPENS}=", f"{_LINK} {OPENS}=")


def html(name: str, value: str = "") -> widgets.HTML:
    """Return a widget for HTML of `mirrorlake.render`, which is escaped."""
    return _named(_Html(value), name)


def paragraph(html: str) -> widgets.HTML:
    return widgets.HTML(f'<div style="max-width:60em;margin:.4em 0">{html}</div>')


def code(text: str, name: str = "") -> str:
    """Return lines of settings, commands or differences as HTML; long lines wrap on a narrow page."""
    lines = "\n".join(escape(line) for line in text.splitlines())
    named = f' class="ml-{name}"' if name else ""
    return f'<pre{named} style="white-space:pre-wrap;overflow-wrap:anywhere">{lines}</pre>'


def row(*children: widgets.Widget) -> widgets.HBox:
    return widgets.HBox(list(children), layout=widgets.Layout(flex_flow="row wrap"))


def beside(first: widgets.Widget, second: widgets.Widget) -> widgets.HBox:
    """Return parts side by side, or below each other on a narrow page."""
    for part, width in ((first, "32em"), (second, "25em")):
        part.layout.flex, part.layout.min_width = f"1 1 {width}", "0"
    return row(first, second)


def column(*children: widgets.Widget) -> widgets.VBox:
    return widgets.VBox(list(children))


def refill(field: widgets.Dropdown, options: Sequence[Any], value: Any = None) -> None:
    """Replace the options; the chosen value remains if it is still an option."""
    chosen = value if value is not None else field.value
    field.options = list(options)
    field.value = chosen if chosen in options else options[0] if options else None


def _named(widget: Any, name: str) -> Any:
    widget.add_class(f"ml-{name}")
    return widget
