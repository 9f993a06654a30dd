"""Find JSON values in which an object names a tested member twice: readers differ in the copy that they take.

Rules fail closed: `{"secret": false, "secret": true}` is false to one reader and true to the next, so no result of a
predicate on `secret` is safe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.rules.headers import Flags

# A name with escapes ends in a quote and a colon. Names that are always escaped (quotes, backslashes, control characters)
# make every value a suspect.
_ESCAPED_NAME = r'\\[^"]*"\s*:'
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')


class _Members(tuple[tuple[str, Any], ...]):
    __slots__ = ()


def names_twice(values: pa.Array, pointers: Sequence[str]) -> Flags | None:
    """Flag the values in which an object on a pointer's path (RFC 6901) has the next name twice; None if there are none.

    Null and invalid JSON are not flagged.
    """
    paths = [_steps(pointer) for pointer in pointers]
    suspects = _suspects(values, {name for path in paths for name in path})
    if suspects is None:
        return None
    found = np.zeros(len(values), np.bool_)
    for row in np.flatnonzero(suspects):
        found[row] = _repeats(values[int(row)].as_py(), paths)
    return found if found.any() else None


def _steps(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _suspects(values: pa.Array, names: set[str]) -> Flags | None:
    """Flag the values that may have a name twice, by their text alone: most need no parsing."""
    suspects = pc.match_substring_regex(values, _ESCAPED_NAME)
    for name in names:
        if not _PLAIN.fullmatch(name):
            suspects = pc.is_valid(values)
            break
        often = pc.greater(pc.count_substring(values, json.dumps(name, ensure_ascii=False)), 1)
        suspects = pc.or_(suspects, often)
    flags: Flags = pc.fill_null(suspects, False).to_numpy(zero_copy_only=False)
    return flags if flags.any() else None


def _repeats(text: str, paths: Sequence[Sequence[str]]) -> bool:
    try:
        value = json.loads(text, object_pairs_hook=_Members)
    except ValueError:
        return False
    except RecursionError:
        return True
    return any(_meets_twice(value, path) for path in paths)


def _meets_twice(value: Any, path: Sequence[str]) -> bool:
    for step in path:
        if isinstance(value, _Members):
            found = [member for name, member in value if name == step]
            if len(found) > 1:
                return True
        elif isinstance(value, list) and step.isdecimal():
            found = value[int(step) : int(step) + 1]
        else:
            return False
        if not found:
            return False
        value = found[0]
    return False
