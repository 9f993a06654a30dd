"""The name under which a process owns a flow or a relay: its host, its process id, and a part that is its own.

The name of a temporary owner ends with the id of the sign of life that its command shows (`context/running_flows.py`): such a command,
a failover say, ends soon, and whoever it took the flow or relay from takes it again then.
"""

from __future__ import annotations

import os
import re
import socket
import uuid

_NAMED = re.compile(r"(?P<host>[^/]+)/(?P<process>\d+)/(?P<own>[0-9a-f]+)(/(?P<sign>[0-9a-f]+))?")


def new_owner(sign: str = "") -> str:
    """Make the name of a new owner in this process; of a temporary one where a sign of life is named.

    Example:
        >>> new_owner().count("/")
        2
    """
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}" + (f"/{sign}" if sign else "")


def temporary_sign(owner: str) -> str:
    """Return the id of a temporary owner's sign of life; empty for an owner that stays.

    Example:
        >>> temporary_sign("loader-3/4711/5f2a91c04d6e/ab12"), temporary_sign("loader-3/4711/5f2a91c04d6e")
        ('ab12', '')
    """
    found = _NAMED.fullmatch(owner)
    return (found["sign"] or "") if found else ""


def said_owner(owner: str) -> str:
    """Say who an owner is; releases up to 0.2.0 named neither host nor process.

    Example:
        >>> said_owner("loader-3/4711/5f2a91c04d6e4e6c8f0b3c1d2e3f4a5b")
        'process 4711 on loader-3 (5f2a91c0)'
    """
    found = _NAMED.fullmatch(owner)
    return f"process {found['process']} on {found['host']} ({found['own'][:8]})" if found else owner[:8] or "nobody"


def short_owner(owner: str) -> str:
    """Return the first eight characters of an owner's own part, for the names of threads."""
    found = _NAMED.fullmatch(owner)
    return (found["own"] if found else owner)[:8]
