"""The name under which a process owns a flow or a relay: host, process id, and a unique part.

The name of a temporary owner ends with the id under which its command announces itself (`context/running_flows.py`).
Such a command, a failover for example, ends soon, and the earlier owner then claims its flow or relay again.
"""

from __future__ import annotations

import os
import re
import socket
import uuid

_NAMED = re.compile(r"(?P<host>[^/]+)/(?P<process>\d+)/(?P<own>[0-9a-f]+)(/(?P<sign>[0-9a-f]+))?")


def new_owner(sign: str = "") -> str:
    """Return a new owner's name in this process; a temporary owner's if `sign` is given."""
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}" + (f"/{sign}" if sign else "")


def temporary_sign(owner: str) -> str:
    """Return the announced id of a temporary owner, or "" for a permanent one."""
    found = _NAMED.fullmatch(owner)
    return (found["sign"] or "") if found else ""


def said_owner(owner: str) -> str:
    found = _NAMED.fullmatch(owner)
    return f"process {found['process']} on {found['host']} ({found['own'][:8]})" if found else owner[:8] or "nobody"


def short_owner(owner: str) -> str:
    """Return the first eight characters of an owner's unique part, for thread names."""
    found = _NAMED.fullmatch(owner)
    return (found["own"] if found else owner)[:8]
