"""The last cause that the error text of a query or Python worker names, in one line.

The text is pages long and names its cause near the end.
"""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_PACKAGE = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*(?::|$))")
_LONGEST = 400


def root_cause(text: str) -> str:
    r"""Return the last cause in an error's text: the last line of a Python traceback, or Java's last cause.

    Example:
        >>> root_cause("Job aborted\nCaused by: java.lang.IllegalStateException: the log is gone\n\tat x.y(Z.java)")
        'IllegalStateException: the log is gone'
        >>> root_cause("PythonException:\nTraceback (most recent call last):\n  File 'a'\nValueError: 3\n\n\tat o.a.s")
        'ValueError: 3'
        >>> called = "Traceback (most recent call last):\n  File 'a'\npy4j.protocol.Py4JJavaError: An error occurred in o1"
        >>> java = "\n: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
        >>> root_cause(called + java + "\nCaused by: java.io.EOFException")
        'SparkException: Python worker exited unexpectedly (crashed)'
    """
    if _TRACEBACK in text:
        after = text.rpartition(_TRACEBACK)[2].splitlines()
        ends = [line for line in after if line.strip() and not line[0].isspace()]
        if ends and "Py4JJavaError" not in ends[0]:
            return _short(ends[0])
        # Python called Java: the Java error follows, as ": org.apache…" and its causes.
        text = "\n".join(line.removeprefix(": ") for line in after[after.index(ends[0]) + 1 :]) if ends else text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    # A bare java.io.EOFException often comes last and explains nothing.
    told = [cause for cause in causes if ": " in cause]
    return _short((told or lines[:1] or causes or ["unknown"])[-1])


def _short(line: str) -> str:
    return _PACKAGE.sub("", line)[:_LONGEST]
