"""Parameters of a notebook: the values of its cell, or of a Databricks job or a person instead."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from mirrorlake.errors import UsageError
from mirrorlake.notebook.display import running_shell

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "")


def params(**defaults: bool | int | float | str) -> SimpleNamespace:
    """Return the parameters of this notebook, each with the type of its default.

    On Databricks each becomes a text widget at the top of the notebook, which a job's parameters fill. Otherwise the defaults
    are returned: papermill writes its own values below the cell tagged `parameters`.

    Args:
        **defaults: values by name, as the parameters cell sets them.

    Raises:
        UsageError: a widget's text cannot be read as the type of its default.

    Example:
        >>> params(records=300).records
        300
    """
    shell = running_shell()
    dbutils = shell.user_ns.get("dbutils") if shell is not None else None
    widgets = getattr(dbutils, "widgets", None)
    if widgets is None:
        return SimpleNamespace(**defaults)
    for name, value in defaults.items():
        widgets.text(name, str(value))
    return SimpleNamespace(**read(defaults, {name: widgets.get(name) for name in defaults}))


def read(defaults: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return texts as values of the types of their defaults.

    Example:
        >>> read({"records": 300, "once": True}, {"records": "5", "once": "no"})
        {'records': 5, 'once': False}
    """
    found, faults = {}, []
    for name, default in defaults.items():
        try:
            found[name] = _value(texts[name], type(default))
        except ValueError:
            faults.append(f"{name}={texts[name]!r} is not of type {type(default).__name__}")
    if faults:
        raise UsageError(
            "; ".join(faults), consequence="the notebook cannot go on", remedy="correct the widgets, then run again"
        )
    return found


def _value(text: str, kind: type) -> Any:
    if kind is not bool:
        return kind(text)
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise ValueError(word)
    return word in _TRUE
