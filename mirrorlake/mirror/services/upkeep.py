"""Keep the lake of a mirror small, and the ledgers of its flows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError, StoreError
from mirrorlake.maintenance import LakeUpkeep, Maintained, SentUpTo, TrimmedLedger
from mirrorlake.mirror.services.connections import Connections
from mirrorlake.republish import LedgerCopy, merged_positions, read_lanes
from mirrorlake.runtime import Duty

_FIRST_S = 60.0


class Upkeep:
    """Keep what one mirror writes to; safe while it runs, here or elsewhere."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def once(self, *, plan: bool = False, is_stopped: Callable[[], bool] = lambda: False) -> Maintained:
        """Do what is due (see `Mirror.maintain`)."""
        connections = self._connections
        config, lake = connections.config, connections.lake
        standing: dict[str, list[SentUpTo]] = {alias: [] for alias in config.sources}
        ledgers = []
        for flow in config.flows:
            found, trimmed = self._ledger(flow, plan=plan)
            standing[flow.source].append(found)
            ledgers.append(trimmed)
        upkeep = LakeUpkeep(
            lake, config.maintenance, now=connections.now, clusters=config.clusters, is_stopped=is_stopped
        )
        tables = upkeep.tables(standing, published=config.lake_clusters, plan=plan)
        return Maintained(planned=plan, tables=tuple(tables), ledgers=tuple(ledgers))

    def duty(self, is_stopped: Callable[[], bool]) -> Duty:
        """Return the duty of a mirror that runs; what it could not do is logged, and tried again at its next turn."""

        def do() -> None:
            done = self.once(is_stopped=is_stopped)
            if not done.ok:
                raise StoreError(
                    "; ".join(done.why_not), consequence="the rest was kept", remedy="mirrorlake maintain tries again"
                )

        every_s = self._connections.config.maintenance.every.total_seconds()
        # The streams need all cores for their start.
        return Duty(name="maintain", every_s=every_s, first_s=min(every_s, _FIRST_S), do=do)

    def _ledger(self, flow: FlowConfig, *, plan: bool) -> tuple[SentUpTo, TrimmedLedger]:
        connections = self._connections
        try:
            admin = connections.admin(flow.target)
            with closing(connections.ledger(flow)) as reader:
                last = read_lanes(reader, admin, flow.ledger_topic)
                standing = SentUpTo(flow=flow, positions=merged_positions(last))
                if plan or not last:
                    return standing, TrimmedLedger(flow=flow.name)
                copy = LedgerCopy(connections.lake, flow.name, flow.source)
                return standing, TrimmedLedger(flow=flow.name, records=copy.trim(reader, admin, sorted(last)))
        except MirrorlakeError as error:
            # Without its position the flow is waited for.
            return SentUpTo(flow=flow, positions=None), TrimmedLedger(flow=flow.name, why_not=error.cause)
