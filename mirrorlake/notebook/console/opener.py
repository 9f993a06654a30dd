"""Open what a person clicks in the HTML of the console: `controls.html` makes links of the linked texts of `mirrorlake.render`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mirrorlake.notebook.console.browser_widget import BrowserWidget, script


class Opener(BrowserWidget):
    _esm = script("opener.js")
    _css = Path(__file__).with_name("opener.css")

    def __init__(self, follow: Callable[[str], None], *, name: str = "opener", **traits: Any) -> None:
        super().__init__(name, **traits)
        self._follow = follow

    def answer(self, content: dict[str, Any]) -> None:
        if isinstance(path := content.get("open"), str):
            self._follow(path)
