"""Render a verdict as a badge of sign and word; the colour only repeats both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mirrorlake.render.content import clean, escape

Mood = Literal["good", "note", "warn", "bad", "off", "unknown"]

_SIGNS: dict[Mood, str] = {"good": "✓", "note": "·", "warn": "!", "bad": "✗", "off": "‖", "unknown": "?"}
# JupyterLab's own colours, which follow its theme; the fallbacks differ from white and from black.
_COLOURS: dict[Mood, str] = {
    "good": "var(--jp-success-color1,#3d9a50)",
    "note": "var(--jp-info-color1,#2f8fb8)",
    "warn": "var(--jp-warn-color1,#c77700)",
    "bad": "var(--jp-error-color1,#d64545)",
    "off": "var(--jp-ui-font-color2,#808080)",
    "unknown": "var(--jp-ui-font-color2,#808080)",
}
_MOODS: dict[str, Mood] = {
    **dict.fromkeys(("ok", "equal", "caught_up", "in_step", "exact", "applied", "nothing to change", "met"), "good"),
    **dict.fromkeys(("warning", "behind", "hold", "held", "topic_lost", "expiring", "blocked"), "warn"),
    **dict.fromkeys(
        ("stop", "stall", "rewind", "cluster away", "different", "conflict", "refused", "failed", "parked", "missed"),
        "bad",
    ),
    **dict.fromkeys(("missing", "extra", "doubled", "altered", "out_of_order", "not_republished"), "bad"),
    **dict.fromkeys(("paused", "not_started", "empty"), "off"),
    **dict.fromkeys(("unknown", "warming up"), "unknown"),
}


@dataclass(frozen=True, slots=True)
class Badge:
    word: str
    mood: Mood

    @property
    def sign(self) -> str:
        """The sign of the mood, so that colour is not needed."""
        return _SIGNS[self.mood]

    def __str__(self) -> str:
        return f"{self.sign} {clean(self.word)}"

    def html(self) -> str:
        """Return the badge as HTML; the word has the surrounding text's colour, to be readable in any theme."""
        colour = _COLOURS[self.mood]
        style = f"white-space:nowrap;border:1px solid {colour};border-left-width:4px;border-radius:3px;padding:0 .4em"
        return f'<span style="{style}">{escape(str(self))}</span>'


def badge(word: str, mood: Mood | None = None) -> Badge:
    """Return a badge; words of mirrorlake's verdicts imply their mood, others are a note.

    >>> print(badge("in_step"), badge("behind"), badge("lost", "bad"))
    ✓ in_step ! behind ✗ lost
    """
    return Badge(word, mood or _MOODS.get(word.lower(), "note"))
