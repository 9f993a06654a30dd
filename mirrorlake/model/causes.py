"""What a failed query or Python worker says last, in one line: the text is pages long, and its cause stands near the end."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_PACKAGE = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*(?::|$))")
_LONGEST = 400


def root_cause(text: str) -> str:
    r"""Tell the last cause that an error's text names: of a Python worker's traceback its last line, of Java's causes the last.

    Example:
        >>> root_cause("Job aborted\nCaused by: java.lang.IllegalStateException: the log is gone\n\tat x.y(Z.java)")
        'IllegalStateException: the log is gone'
        >>> root_cause("PythonException:\nTraceback (most recent call last):\n  File 'a'\nValueError: 3\n\n\tat o.a.s")
        'ValueError: 3'
    """
    if _TRACEBACK in text:
        after = text.rpartition(_TRACEBACK)[2].splitlines()
        ends = [line for line in after if line.strip() and not line[0].isspace()]
        if ends:
            return _short(ends[0])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    return _short(causes[-1] if causes else lines[0] if lines else "unknown")


def _short(line: str) -> str:
    return _PACKAGE.sub("", line)[:_LONGEST]
