"""A page with a widget of the console and no notebook: what anywidget gives a script, and nothing more."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

from mirrorlake.notebook.console.browser_widget import BrowserWidget

_START = """
async ([script, css, traits, place]) => {
  const heard = {};
  window.fire = (event, value) => (heard[event] ?? []).forEach((call) => call(value));
  window.sent = [];
  window.manager = {};
  window.model = {
    get: (key) => traits[key],
    set: (key, value) => { traits[key] = value; window.fire(`change:${key}`); },
    save_changes: () => {},
    on: (event, call) => (heard[event] ??= []).push(call),
    off: () => {},
    send: (message) => window.sent.push(message),
    widget_manager: window.manager,
  };
  document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  const { default: { render } } = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  render({ model: window.model, el: document.querySelector(place) });
}
"""


def start(page: Page, kind: type[BrowserWidget], traits: dict[str, Any], *, place: str = "main") -> None:
    """Draw a widget of a kind in an element of the page; `model`, `fire` and `sent` are its other end."""
    page.evaluate(_START, [str(kind._esm), str(kind._css), traits, place])
