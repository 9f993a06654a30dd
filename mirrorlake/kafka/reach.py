"""Probe a cluster's addresses by TCP, before a client waits for its time-outs."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterable, Mapping

from confluent_kafka.admin import BrokerMetadata

from mirrorlake.errors import ClusterUnreachable

# A connection over the longest distance takes half a second; a hanging name server or a firewall takes forever.
CONNECT_TIMEOUT_S = 2.0
# One probe of all clusters serves every client that is created for them next.
_CACHE_S = 1.0
_cache: dict[str, tuple[float, dict[str, str]]] = {}


def probe(clusters: Mapping[str, str], *, timeout_s: float = CONNECT_TIMEOUT_S) -> dict[str, dict[str, str]]:
    """Connect to every address of these clusters in parallel. Return each address's fault, or "" if it listens.

    TLS and SASL are not tried: an open port is enough.
    """
    addresses = {alias: _addresses(servers) for alias, servers in clusters.items()}
    faults = _connect_all({one for several in addresses.values() for one in several}, timeout_s)
    silent = f"no answer within {timeout_s:g} s"
    found = {alias: {one: faults.get(one, silent) for one in several} for alias, several in addresses.items()}
    _cache.update({servers: (time.monotonic(), found[alias]) for alias, servers in clusters.items()})
    return found


def require_listening(alias: str, servers: str) -> None:
    """Check that at least one address of a cluster listens."""
    at, problems = _cache.get(servers, (float("-inf"), {}))
    if time.monotonic() - at > _CACHE_S:
        problems = probe({alias: servers})[alias]
    if not problems or not all(problems.values()):
        return
    said = ", ".join(f"{address} {problem}" for address, problem in problems.items())
    local = all(address.startswith(("127.", "localhost:", "[::1]")) for address in problems)
    start = "start it (local brokers: `mirrorlake sandbox up`)" if local else "start it"
    raise ClusterUnreachable(
        f"cluster {alias} does not answer: {said}",
        consequence="nothing was read from it or changed on it",
        remedy=f"{start}, or correct clusters.{alias}.bootstrap_servers; then `mirrorlake doctor`",
        alias=alias,
    )


def advertised_error(alias: str, servers: str, brokers: Iterable[BrokerMetadata]) -> ClusterUnreachable | None:
    """Return the error of brokers that call themselves by addresses which cannot be reached from here, besides those of `servers`."""
    named = {f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}" for one in brokers}
    others = ",".join(sorted(named - {*_addresses(servers)}))
    faults = [f"{address} (from here: {fault})" for address, fault in probe({"": others})[""].items() if fault]
    if not faults:
        return None
    return ClusterUnreachable(
        f"the brokers of {alias} call themselves {', '.join(faults)}; clients find them at {servers}, and are sent on to there",
        consequence="this step did not finish",
        remedy="set their advertised.listeners to addresses that this machine reaches, or start them; then `mirrorlake doctor`",
        alias=alias,
        addresses=len(faults),
    )


def _addresses(servers: str) -> list[str]:
    return [one.strip() for one in servers.split(",") if one.strip()]


def _connect_all(addresses: set[str], timeout_s: float) -> dict[str, str]:
    ended: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for address in addresses:
        # Daemon threads: a name look-up cannot be interrupted, and must not delay the process's end.
        work = threading.Thread(target=lambda one=address: ended.put((one, _connect(one, timeout_s))), daemon=True)
        work.start()
    faults: dict[str, str] = {}
    deadline = time.monotonic() + timeout_s
    while len(faults) < len(addresses) and (left := deadline - time.monotonic()) > 0:
        try:
            address, problem = ended.get(timeout=left)
        except queue.Empty:
            break
        faults[address] = problem
    return faults


def _connect(address: str, timeout_s: float) -> str:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
    except socket.gaierror:
        return "name does not resolve"
    except ConnectionRefusedError:
        return "connection refused"
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (OSError, ValueError, UnicodeError) as error:
        return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    return ""
