"""The plain content of the settings, without secrets, to store, compare and show.

It omits defaults, so that a later release with a further key reads the same content. Client and producer options, and values
that look like secrets, are fingerprints. References such as `${secret:scope/key}` in other settings stay as written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.config.secrets import is_reference, looks_secret

_HIDDEN = {"client", "producer"}


def plain(config: MirrorConfig) -> dict[str, Any]:
    """Return the plain content: `{"lake": …, "clusters": {alias: …}, "flows": {name: …}}`.

    Example:
        >>> from mirrorlake.config.loading import loads
        >>> plain(loads('''
        ... lake: {root: ./lake}
        ... clusters: {east: {bootstrap_servers: "e:9092"}, west: {bootstrap_servers: "w:9092"}}
        ... flows: [{source: east, target: west, topics: orders}]
        ... '''))["flows"]
        {'east->west': {'name': 'east->west', 'source': 'east', 'target': 'west', 'topics': ['orders']}}
    """
    # Tracking does not change what a mirror does, and an address may contain a password.
    dumped = config.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"tracking"})
    content = _without_secrets(dumped)
    return {**content, "flows": {flow["name"]: flow for flow in content["flows"]}}


def identity(content: Any) -> str:
    """Return the fingerprint of plain content, 16 hex digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _without_secrets(value: Any, *, hidden: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _without_secrets(inner, hidden=hidden or key in _HIDDEN or _is_secret(key, inner))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(item, hidden=hidden) for item in value]
    return _fingerprint(str(value)) if hidden else value


def _is_secret(key: str, value: Any) -> bool:
    return looks_secret(key) and isinstance(value, str) and not is_reference(value)


@lru_cache(maxsize=1024)
def _fingerprint(text: str) -> str:
    # Slow and short on purpose: a reader of the lake must not be able to try a list of passwords.
    return "#" + hashlib.pbkdf2_hmac("sha256", text.encode(), b"mirrorlake settings", 20_000).hex()[:8]
