"""Read flows from the ledgers on a cluster: also flows of other settings files, renamed and removed ones."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin, RecordReader
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.model.flow import is_ledger
from mirrorlake.model.ledger import FlowOrigin, LedgerRecord, merged_remotes
from mirrorlake.model.remotes import Remote

log = logging.getLogger(__name__)

# Flows that start together, and topics that become ready one by one, share one read.
KNOWN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFlow:
    """A flow into a cluster by its ledger there; `sent` are the source topics of its sent records.

    `origin` is None if an earlier release wrote the ledger.
    """

    name: str
    ledger: str
    origin: FlowOrigin | None
    remotes: Mapping[str, Remote]
    sent: frozenset[str]


class LedgerFlows:
    """Read the last record of each lane of the ledgers on clusters, with one consumer for each cluster.

    Args:
        admin: returns the admin of a cluster.
        reader_options: returns librdkafka's consumer options for a cluster.
    """

    def __init__(
        self, admin: Callable[[str], ClusterAdmin], reader_options: Callable[[str], Mapping[str, Any]]
    ) -> None:
        self._admin = admin
        self._reader_options = reader_options
        self._locks: dict[str, threading.Lock] = {}
        self._known: dict[str, tuple[float, dict[str, LedgerFlow | None]]] = {}

    def into(self, alias: str, *, but: Collection[str] = ()) -> list[LedgerFlow]:
        """Return the flows into a cluster, except flows whose ledger topics are in `but`.

        Ledgers that this principal may not read or a later release wrote are omitted.

        Raises:
            ClusterError: the cluster does not answer.
        """
        names = [name for name in self._admin(alias).topic_names() if is_ledger(name) and name not in but]
        # A lock for each cluster: a cluster that hangs blocks no other.
        with self._locks.setdefault(alias, threading.Lock()):
            read_at, flows = self._known.get(alias, (float("-inf"), {}))
            if time.monotonic() - read_at > KNOWN_S:
                read_at, flows = time.monotonic(), {}
                self._known[alias] = read_at, flows
            missing = [name for name in names if name not in flows]
            if missing:
                flows.update(self._read_now(alias, missing))
            return [flow for name in names if (flow := flows.get(name)) is not None]

    def of(self, alias: str, ledger: str) -> LedgerFlow | None:
        """Return the flow of one ledger as it is now, or None if the ledger is missing or empty."""
        return self._read_now(alias, [ledger]).get(ledger)

    def _read_now(self, alias: str, names: Iterable[str]) -> dict[str, LedgerFlow | None]:
        found: dict[str, LedgerFlow | None] = {}
        states = self._admin(alias).describe(names, refused={})
        if not states:
            return found
        options = self._reader_options(alias)
        with RecordReader(alias, options, probes=True) as records:
            for name, state in states.items():
                reader = LedgerReader(alias, name, options, records=records)
                try:
                    last = {lane: reader.last(lane) for lane in range(state.partitions)}
                except ClusterError as error:
                    log.info("ledger.not_read cluster=%s ledger=%s why=%s", alias, name, error.cause)
                    continue
                found[name] = _flow_of(name, last)
        return found


def _flow_of(ledger: str, last: Mapping[int, LedgerRecord | None]) -> LedgerFlow | None:
    newest = max((record for record in last.values() if record), key=lambda one: one.claim.epoch, default=None)
    if newest is None:
        return None
    positions = {source.topic for record in last.values() if record for source, at in record.positions.items() if at}
    return LedgerFlow(
        name=newest.claim.flow,
        ledger=ledger,
        origin=newest.claim.origin,
        remotes=merged_remotes(last),
        sent=frozenset(positions),
    )
