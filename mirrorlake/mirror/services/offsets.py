"""Where readers go on: the clusters and maps that offsets and groups are translated with."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.groups.plan import GroupSync
from mirrorlake.kafka.groups import Groups
from mirrorlake.kafka.mm2_writer import Mm2Writer, mm2_writer
from mirrorlake.mirror.services.connections import Places
from mirrorlake.offsets.known_map import KnownMaps, known_maps


class Positions(Places):
    """Make the steps that relate the offsets of flows."""

    def groups(self, alias: str) -> Groups:
        """Return the consumer groups of a cluster."""
        if alias not in self._groups:
            self._groups[alias] = Groups(alias, self.reader_options(alias))
        return self._groups[alias]

    def known_maps(self, flows: Iterable[FlowConfig]) -> KnownMaps:
        """Return the offset maps of the flows, their ledgers' newest runs included."""
        return known_maps(self.lake, flows, self)

    def group_sync(self, flow: FlowConfig, *, recorded: bool = False) -> GroupSync:
        """Build the group sync of a flow, which reads, plans and sets its groups; `recorded` reads their positions from the lake."""
        checkpoints = self._mm2_writer(flow) if flow.mm2.checkpoints else None
        return GroupSync(self.lake, flow, self, now=self.now, recorded=recorded, checkpoints=checkpoints)

    def _mm2_writer(self, flow: FlowConfig) -> Mm2Writer:
        if flow.name not in self._mm2_writers:
            cluster, admin = self.config.cluster(flow.target), self.admin(flow.target)
            self._mm2_writers[flow.name] = mm2_writer(flow, cluster, admin, now=self.now)
        return self._mm2_writers[flow.name]
