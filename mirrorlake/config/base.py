"""Base of every part of the settings: frozen, without unknown keys, hides its input, records its origin in the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    model_validator,
)

from mirrorlake.config import secrets, values
from mirrorlake.config.faults import fault_error
from mirrorlake.model.patterns import TopicPattern

_as_list = PlainSerializer(lambda pattern: list(pattern.expressions), return_type=list)
Selection = Annotated[TopicPattern, BeforeValidator(lambda value: values.patterns(value, required=True)), _as_list]
Exclusion = Annotated[TopicPattern, BeforeValidator(lambda value: values.patterns(value, required=False)), _as_list]
Size = Annotated[int, BeforeValidator(values.size), PlainSerializer(lambda number: f"{number} B", return_type=str)]
Interval = Annotated[
    timedelta,
    BeforeValidator(values.interval),
    PlainSerializer(lambda length: f"{length / timedelta(milliseconds=1):.0f}ms", return_type=str),
]


def at_least(length: timedelta, problem: str, remedy: str) -> AfterValidator:
    def check(value: timedelta) -> timedelta:
        if value < length:
            raise fault_error(problem, remedy)
        return value

    return AfterValidator(check)


Count = Annotated[int, BeforeValidator(values.whole), Field(strict=True, ge=1)]
Flag = Annotated[bool, BeforeValidator(values.flag)]
Options = Annotated[dict[str, str], BeforeValidator(values.options)]
Execution = Literal["live", "streaming"]


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    _file: str = PrivateAttr(default="settings")
    _place: str = PrivateAttr(default="")
    _folder: Path | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, data: Any) -> Any:
        # A person who comments out all options leaves a bare `client:`.
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data

    @property
    def file(self) -> str:
        return self._file

    @property
    def place(self) -> str:
        return self._place

    def note_origin(self, file: str, place: str, folder: Path | None = None) -> None:
        self._file, self._place, self._folder = file, place, folder

    def beside_file(self, path: str) -> str:
        """Return a path absolute to the folder of the settings file, or to the working directory without a file."""
        return os.path.normpath((self._folder or Path.cwd()) / path)

    def resolved(self, text: str, key: str) -> str:
        """`key` is the setting's path below this part, for the error."""
        return secrets.resolve(text, file=self._file, path=f"{self._place}.{key}".removeprefix("."))


def masked(pairs: Any, options: str) -> Iterator[tuple[str | None, Any]]:
    """Yield the pairs that `repr` shows: literal secrets masked, references shown."""
    for name, value in pairs:
        if name == options:
            yield name, {key: _shown(key, text) for key, text in value.items()}
        else:
            yield name, value


def _shown(key: str, text: str) -> str:
    return secrets.MASK if secrets.looks_secret(key) and not secrets.is_reference(text) else text
