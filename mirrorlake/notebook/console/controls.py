"""The few kinds of controls that the console is made of, each with the class by which a test or a style finds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

_WIDE = "44em"
_NARROW = "20em"
_LABEL = {"description_width": "11em"}


def text(
    name: str, label: str, *, hint: str = "", value: str = "", wide: bool = True, live: bool = True
) -> widgets.Text:
    """Return a line of text; `live` reports every key, otherwise when it was left."""
    layout = widgets.Layout(width=_WIDE if wide else _NARROW)
    field = widgets.Text(
        value=value, description=label, placeholder=hint, layout=layout, style=_LABEL, continuous_update=live
    )
    return _named(field, name)


def password(name: str, label: str) -> widgets.Password:
    """Return a password field; it reports its content once, when it was left."""
    layout = widgets.Layout(width=_WIDE)
    return _named(widgets.Password(description=label, layout=layout, style=_LABEL, continuous_update=False), name)


def integer(name: str, label: str, *, value: int = 0, least: int = 0, most: int = 2**53) -> widgets.BoundedIntText:
    """Return a field for a whole number."""
    layout = widgets.Layout(width=_NARROW)
    field = widgets.BoundedIntText(value=value, min=least, max=most, description=label, layout=layout, style=_LABEL)
    return _named(field, name)


def dropdown(name: str, label: str, options: Sequence[Any] = (), value: Any = None) -> widgets.Dropdown:
    """Return a list to choose from."""
    layout = widgets.Layout(width=_WIDE)
    options = list(options)
    field = widgets.Dropdown(options=options, value=value, description=label, layout=layout, style=_LABEL)
    return _named(field, name)


def checkbox(name: str, label: str, *, value: bool = False) -> widgets.Checkbox:
    """Return a box to tick."""
    return _named(widgets.Checkbox(value=value, description=label, style=_LABEL), name)


def button(name: str, label: str, *, tip: str = "", main: bool = False) -> widgets.Button:
    """Return a button; `main` marks the one that changes a cluster or goes on."""
    return _named(widgets.Button(description=label, tooltip=tip or label, button_style="primary" if main else ""), name)


def html(name: str, value: str = "") -> widgets.HTML:
    """Return a place for what `mirrorlake.render` makes; everything in it is escaped there."""
    return _named(widgets.HTML(value), name)


def paragraph(html: str) -> widgets.HTML:
    """Return sentences of ours."""
    return widgets.HTML(f'<div style="max-width:60em;margin:.4em 0">{html}</div>')


def row(*children: widgets.Widget) -> widgets.HBox:
    """Return controls beside each other."""
    return widgets.HBox(list(children), layout=widgets.Layout(flex_flow="row wrap"))


def column(*children: widgets.Widget) -> widgets.VBox:
    """Return controls below each other."""
    return widgets.VBox(list(children))


def refill(field: widgets.Dropdown | widgets.Select, options: Sequence[Any], value: Any = None) -> None:
    """Replace the options; what was chosen stays chosen where it still is one."""
    chosen = value if value is not None else field.value
    field.options = list(options)
    values = [option[1] if isinstance(option, tuple) else option for option in options]
    field.value = (
        chosen if chosen in values else (values[0] if values and isinstance(field, widgets.Dropdown) else None)
    )


def _named(widget: Any, name: str) -> Any:
    widget.add_class(f"ml-{name}")
    return widget
