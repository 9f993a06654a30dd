r"""Hide members of JSON values by path: mask, hash, set to null or remove them; all other text stays as written.

Each object on a path is decoded one level deep, its members as raw text, and written again. So 1.10 or a number of 30 digits
does not change, and a name with escapes (`"\u0073sn"`) matches. If an object has a member twice, the last one counts, as for
most readers, and only that one is written. An object without a match keeps its text, also earlier copies of a member.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mirrorlake.model.json_path import Anywhere, Every, Index, Member, Path

Raw = msgspec.Raw
Replace = Callable[[Raw], Raw | None]
"""Maps a member's JSON text to its replacement; None removes the member."""

MASK = Raw(b'"***"')
NULL = Raw(b"null")
_NAMED = (Member, Anywhere)

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode
_any = msgspec.json.Decoder(Raw).decode
_text = msgspec.json.Decoder(str).decode
_write = msgspec.json.Encoder().encode


class NotJson(ValueError):
    """A value is not JSON, or nested too deeply to read; contains no data of it."""


def masked(_: Raw) -> Raw:
    return MASK


def nulled(_: Raw) -> Raw:
    return NULL


def removed(_: Raw) -> None: ...


def keyed_hash(key: bytes) -> Replace:
    """Return a function that replaces a member by its HMAC-SHA256 (RFC 2104) in hex: of a string's characters, else of its JSON text.

    null stays null, as with SQL functions: its hash would be well known.
    """
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    # Copies of two prepared halves take 0.7 CPU-us a hash, hmac.digest takes 1.8.
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))

    def replace(member: Raw) -> Raw:
        text = bytes(member)
        if text == b"null":
            return NULL
        first, second = inner.copy(), outer.copy()
        first.update(_text(text).encode() if text[:1] == b'"' else text)
        second.update(first.digest())
        return Raw(b'"%b"' % second.hexdigest().encode())

    return replace


class Hider:
    """Replace the members at any of the paths of a value, each once."""

    def __init__(self, paths: Iterable[Path], replace: Replace) -> None:
        self._paths = tuple(paths)
        self._replace = replace
        last_names = [[step.name for step in path if isinstance(step, _NAMED)][-1:] for path in self._paths]
        # A path can only match a text that contains its last name; [] if a path has no name.
        self._needles = [f'"{name}"'.encode() for [name] in last_names] if all(last_names) else []

    def __call__(self, value: bytes) -> bytes:
        """Return the value with its members replaced, or the same object if no path matches.

        Raises:
            NotJson: the value is not JSON.
        """
        try:
            raw = _any(value)
            hidden = self._hidden(raw, self._paths)
        except (ValueError, RecursionError):
            # From None: the texts of these errors may contain parts of the value.
            raise NotJson from None
        return value if hidden is raw else bytes(hidden)

    def _can_match(self, text: bytes, paths: tuple[Path, ...]) -> bool:
        # A backslash may begin an escape, and so hide a name.
        if not self._needles or b"\\" in text or any(needle in text for needle in self._needles):
            return True
        # Below its last name, a path leads into any text: `items[*]`.
        return not all(any(isinstance(step, _NAMED) for step in path) for path in paths)

    def _hidden(self, raw: Raw, paths: tuple[Path, ...]) -> Raw:
        """Return an object or array with its members replaced, or `raw` itself if no path matches."""
        text = bytes(raw)
        if text[:1] not in (b"{", b"[") or not self._can_match(text, paths):
            return raw
        is_object = text[:1] == b"{"
        members: dict[Any, Raw] = _object(text) if is_object else dict(enumerate(_array(text)))
        changes: dict[Any, Raw | None] = {}
        # Most rules name members of the value itself: no other member is visited.
        named = {step.name for step, *_ in paths if isinstance(step, Member)}
        for name in named & members.keys() if all(isinstance(step, Member) for step, *_ in paths) else members:
            below = _below(paths, name)
            if () in below:
                changes[name] = self._replace(members[name])
            elif below and (hidden := self._hidden(members[name], below)) is not members[name]:
                changes[name] = hidden
        if not changes:
            return raw
        left = {name: new for name, old in members.items() if (new := changes.get(name, old)) is not None}
        return Raw(_write(left if is_object else list(left.values())))


def _below(paths: tuple[Path, ...], name: str | int) -> tuple[Path, ...]:
    """Return what is left of the paths that lead through a member of this name, or through the item at this index."""
    below: dict[Path, None] = {}
    for path in paths:
        step = path[0]
        if isinstance(step, Anywhere):
            below[path] = None
        if isinstance(step, Every) or name == (step.index if isinstance(step, Index) else step.name):
            below[path[1:]] = None
    return tuple(below)
