"""Runs side by side, as a frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_FIRST = ("run_id", "kind", "flow", "name", "began_at", "ended_at", "status")


def runs_frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return runs as a pandas frame: who and when first, times in UTC, then figures, then parameters as `param.*`.

    >>> frame = runs_frame([{"run_id": "a", "began_at_ms": 0, "ended_at_ms": None, "param.lanes": "2", "equal": 1.0}])
    >>> list(frame.columns)
    ['run_id', 'kind', 'flow', 'name', 'began_at', 'ended_at', 'status', 'equal', 'param.lanes']
    """
    import pandas as pd

    frame = pd.DataFrame(list(rows))
    for name in ("began_at", "ended_at"):
        values = frame.pop(f"{name}_ms") if f"{name}_ms" in frame.columns else [None] * len(frame)
        frame[name] = pd.to_datetime(pd.Series(values, dtype="float64"), unit="ms", utc=True)
    others = [name for name in frame.columns if name not in _FIRST]
    figures = [name for name in others if not name.startswith("param.")]
    return frame.reindex(columns=[*_FIRST, *figures, *(name for name in others if name not in figures)])
