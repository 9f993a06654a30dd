"""Where readers go on: what maps the offsets of flows, and what moves groups by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.kafka.groups import Groups
from mirrorlake.kafka.mm2 import Mm2Writer, mm2_writer, tell_checkpoints
from mirrorlake.model.groups import GroupPlan
from mirrorlake.steps import groups as groups_step
from mirrorlake.steps.maps import KnownMaps, known_maps
from mirrorlake.steps.merged import Family, family
from mirrorlake.steps.resume import Ends
from mirrorlake.wiring.places import Places


class Positions(Places):
    """Make what knows how the offsets of flows belong together."""

    def family(self, flow: FlowConfig) -> Family:
        """Return a flow and those that share remote topics with it."""
        return family(self.lake, flow, self.config.flows)

    def ends(self, kin: Family, *, lost: Collection[str] = ()) -> Ends:
        """Return the target of a family of flows and its sources, without those that are lost."""
        sources = {flow.source: self.source(flow.source) for flow in kin.flows if flow.source not in lost}
        return Ends(sources=sources, target=self.admin(kin.flows[0].target))

    def known_maps(self, flows: Iterable[FlowConfig]) -> KnownMaps:
        """Return the offset maps of the flows, their ledgers' newest runs included."""
        return known_maps(self.lake, flows, admins=self.clusters(), ledger=self.ledger)

    def _group_sides(self, flow: FlowConfig) -> groups_step.GroupSides:
        return groups_step.GroupSides(
            source=Groups(flow.source, self.reader_options(flow.source)),
            target=Groups(flow.target, self.reader_options(flow.target)),
            source_admin=self.admin(flow.source),
            target_admin=self.admin(flow.target),
        )

    def group_sync(self, flow: FlowConfig, *, recorded: bool = False) -> groups_step.GroupSync:
        """Return what reads, plans and sets the groups of a flow; `recorded` takes their positions from the lake."""
        if self.config.cluster(flow.source).is_lake:
            target = Groups(flow.target, self.reader_options(flow.target))
            nobody = GroupPlan(flow.name, ())
            kept = groups_step.GroupRecords(self.lake, flow, self.now)
            return groups_step.GroupSync(flow=flow.name, look=dict, plan=lambda _: nobody, target=target, records=kept)
        sides = self._group_sides(flow)
        lost = {flow.source} if recorded else set[str]()

        def positions_of(each: FlowConfig) -> groups_step.Positions:
            # The groups of this flow, wherever they read: another flow's own selection may leave some of them out.
            chosen = flow.group_selection
            if self.config.cluster(each.source).is_lake:
                return {}
            if each.source in lost:
                return groups_step.recorded_positions(self.lake, each, selection=chosen)
            groups = Groups(each.source, self.reader_options(each.source))
            try:
                admin = self.admin(each.source)
                return groups_step.source_positions(self.lake, each, groups=groups, admin=admin, selection=chosen)
            except ClusterError:
                if each.name == flow.name:
                    raise
                # What a group has read is only ever more: the last known position is never ahead.
                return groups_step.recorded_positions(self.lake, each, selection=chosen)

        def look() -> groups_step.FamilyPositions:
            mine = positions_of(flow)
            if not mine:
                return {}
            # A target with one flow has no merged topics: a pass then costs no look at the metadata.
            beside = self.family(flow).flows[1:] if len(self.config.flows_to(flow.target)) > 1 else ()
            return {flow.name: mine} | {each.name: positions_of(each) for each in beside}

        def plan(positions: groups_step.FamilyPositions) -> GroupPlan:
            kin = self.family(flow)
            maps = partial(self.known_maps, kin.flows)
            ends = self.ends(kin, lost=lost)
            return groups_step.plan_groups(self.lake, kin, positions, maps=maps, sides=sides, ends=ends)

        records = groups_step.GroupRecords(self.lake, flow, self.now)
        tell = partial(tell_checkpoints, self._mm2_writer(flow)) if flow.mm2.checkpoints else len
        return groups_step.GroupSync(
            flow=flow.name, look=look, plan=plan, target=sides.target, records=records, tell=tell
        )

    def _mm2_writer(self, flow: FlowConfig) -> Mm2Writer:
        if flow.name not in self._mm2_writers:
            cluster, admin = self.config.cluster(flow.target), self.admin(flow.target)
            self._mm2_writers[flow.name] = mm2_writer(flow, cluster, admin, now=self.now)
        return self._mm2_writers[flow.name]
