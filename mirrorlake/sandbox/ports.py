"""Ports on the loopback address."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

LOOPBACK = "127.0.0.1"

# Below the systems' range for outgoing connections. A port of that range may become the local end of a client's connection
# while its broker is down: a client that reconnects to this broker may then talk to itself.
_RANGE = range(20_000, 32_000)
_ATTEMPTS = 1_000
# Ports that this process returned lately: nothing may listen on them yet. Two clusters that chose one port before their brokers
# had started answered for each other (2026-11-26).
_returned: set[int] = set()


def is_free(port: int, *, host: str = LOOPBACK) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Like Java's server sockets: closing connections of an earlier broker do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_ports(count: int, *, besides: Collection[int] = ()) -> list[int]:
    """Return free ports, none in `besides`; another process may take one before its use."""
    chooser = random.SystemRandom()
    found: dict[int, None] = {}
    for _ in range(_ATTEMPTS):
        if len(found) == count:
            break
        port = chooser.choice(_RANGE)
        if port not in besides and port not in _returned and is_free(port):
            found[port] = None
    if len(found) < count and _returned:
        # Those of brokers that have ended are free again.
        _returned.clear()
        return free_ports(count, besides=besides)
    _returned.update(found)
    return list(found)
