"""The base of the console's widgets, whose scripts draw them in the browser.

anywidget drops every update from the kernel if a widget's script takes more than 2 s to load (decision 0052).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
import traitlets

_HERE = Path(__file__).parent


def script(name: str) -> str:
    return (_HERE / "browser_widget.js").read_text(encoding="utf-8") + (_HERE / name).read_text(encoding="utf-8")


class BrowserWidget(anywidget.AnyWidget):
    """A widget that misses no update, however slowly the page loads its script.

    The loaded script asks for the traits tagged `resent` again. The browser never sets those.
    """

    own_id = traitlets.Unicode().tag(sync=True)

    def __init__(self, *names: str, **traits: Any) -> None:
        own_id = uuid4().hex
        # The classes are in the first state, because later changes of them are dropped as well.
        classes = tuple(f"ml-{name}" for name in names)
        super().__init__(own_id=own_id, model_id=own_id, _dom_classes=classes, **traits)
        self.on_msg(self._on_browser_message)

    def _on_browser_message(self, _: Any, content: Any, __: Any) -> None:
        if not isinstance(content, dict):
            return
        if "resend" in content:
            self.send_state(self.trait_names(resent=True))
        self.answer(content)

    def answer(self, content: dict[str, Any]) -> None:
        """Answer a message of the script; this base has no messages of its own."""
