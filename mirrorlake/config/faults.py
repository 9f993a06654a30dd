"""Turn the findings of checks into faults for a person: file, line, path, problem, remedy.

pydantic's own texts print the offending input, secrets included, and do not name the file, so all are rewritten.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

Place = tuple[str | int, ...]
"""A path in the file: keys and list positions from the top."""

_QUOTED = re.compile(r"'([^']*)'")


@dataclass(frozen=True)
class SettingsFault:
    place: Place
    problem: str
    remedy: str = ""


def finding_error(*findings: SettingsFault) -> PydanticCustomError:
    """Return the error that a validator raises; paths are relative to the validated value."""
    return PydanticCustomError("findings", "{count} finding(s)", {"count": len(findings), "findings": findings})


def raise_any(findings: Iterable[SettingsFault]) -> None:
    if found := list(findings):
        raise finding_error(*found)


def fault_error(problem: str, remedy: str = "") -> PydanticCustomError:
    return finding_error(SettingsFault((), problem, remedy))


def inner_findings(error: PydanticCustomError) -> tuple[SettingsFault, ...]:
    found: tuple[SettingsFault, ...] = (error.context or {})["findings"]
    return found


@contextmanager
def below(*place: str | int) -> Iterator[None]:
    """Prefix the paths of the findings raised inside."""
    try:
        yield
    except PydanticCustomError as error:
        inner = inner_findings(error)
        raise finding_error(*(SettingsFault((*place, *one.place), one.problem, one.remedy) for one in inner)) from None


def dotted(place: Place) -> str:
    """Return a path as text.

    >>> dotted(("flows", 1, "policy"))
    'flows[1].policy'
    """
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
    return text.removeprefix(".")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the nearest known word, else the list of known words."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known are {', '.join(names)}" if names else ""


def closest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'? ` for the nearest known word, or "" if none is near.

    >>> closest("ordrs", ["orders", "clicks"]), closest("ordrs", ["clicks"])
    ("did you mean 'orders'? ", '')
    """
    meant = did_you_mean(word, known)
    return f"{meant} " if meant.startswith("did") else ""


def findings_of(error: ValidationError, model: type[BaseModel], data: Any) -> list[SettingsFault]:
    found: list[SettingsFault] = []
    for detail in error.errors(include_url=False, include_input=False):
        place = detail["loc"]
        if detail["type"] == "findings":
            found.extend(
                SettingsFault((*place, *inner.place), inner.problem, inner.remedy)
                for inner in detail["ctx"]["findings"]
            )
        else:
            found.append(_finding(detail, model, data))
    return found


def shown(value: Any) -> str:
    """Return a value for a message: quoted and cut.

    The validators of client options, which may be secrets, print no value.
    """
    if isinstance(value, dict):
        return f"a mapping with {', '.join(map(str, value))[:60] or 'nothing in it'}"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return f"'{text[:60]}…'" if len(text) > 60 else f"'{text}'"


def _at(data: Any, place: Place) -> Any:
    for key in place:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _finding(detail: ErrorDetails, model: type[BaseModel], data: Any) -> SettingsFault:
    place, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    value = shown(_at(data, place)) if place else "the whole"
    if kind == "missing":
        return SettingsFault(place[:-1], f"'{place[-1]}' is missing", _describe(model, place))
    if kind == "extra_forbidden":
        owner = _model_at(model, place[:-1])
        known = [field.alias or name for name, field in owner.model_fields.items()] if owner else []
        return SettingsFault(place, f"unknown key '{str(place[-1])[:60]}'", did_you_mean(str(place[-1]), known))
    if kind == "literal_error":
        allowed = _QUOTED.findall(str(context.get("expected", "")))
        return SettingsFault(place, f"{value} is not allowed", did_you_mean(value.strip("'"), allowed))
    if kind in ("greater_than_equal", "less_than_equal", "greater_than", "less_than"):
        return SettingsFault(place, f"{value} is out of range", detail["msg"].replace("Input should", "it should"))
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return SettingsFault(place, f"{value} is not a mapping", "write `key: value` lines below it")
    if kind in ("list_type", "tuple_type"):
        return SettingsFault(place, f"{value} is not a list", "begin each item with `- `")
    if kind == "string_type":
        remedy = "quote it; YAML reads words such as no, on and 1 as something else"
        return SettingsFault(place, f"{value} is not text", remedy)
    return SettingsFault(place, f"{value} does not fit", detail["msg"].replace("Input should", "it should"))


def _describe(model: type[BaseModel], place: Place) -> str:
    owner = _model_at(model, place[:-1])
    for name, field in owner.model_fields.items() if owner else ():
        if (field.alias or name) == place[-1] and field.description:
            return f"add `{place[-1]}:` ({field.description})"
    return f"add `{place[-1]}:`"


def _model_at(model: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel] | None:
    annotation: Any = model
    for key in place:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
            annotation = _plain(fields.get(str(key)))
        else:
            members = [member for member in get_args(annotation) if member is not Ellipsis]
            annotation = _plain(members[-1]) if members else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _plain(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next((member for member in get_args(annotation) if member is not type(None)), None)
    return annotation
