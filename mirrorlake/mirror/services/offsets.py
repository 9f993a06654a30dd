"""Where readers go on: what maps the offsets of flows, and what moves groups by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.groups import plan as groups_step
from mirrorlake.groups.own_commits import FamilyPositions
from mirrorlake.groups.own_commits import Positions as CommittedPositions
from mirrorlake.groups.records import GroupRecords, recorded_positions
from mirrorlake.kafka.groups import Groups
from mirrorlake.kafka.mm2_writer import Mm2Writer, mm2_writer, tell_checkpoints
from mirrorlake.mirror.services.connections import Places
from mirrorlake.model.groups import GroupPlan
from mirrorlake.offsets.known_map import KnownMaps, known_maps, with_recorded
from mirrorlake.offsets.resume import Ends
from mirrorlake.offsets.shared_partitions import Family, family


def _reads_alike(one: FlowConfig, other: FlowConfig) -> bool:
    return (one.source, one.topics, one.exclude_topics) == (other.source, other.topics, other.exclude_topics) and (
        one.policy == other.policy and one.policy.kind == "identity"
    )


class Positions(Places):
    """Make the steps that relate the offsets of flows."""

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

    def family_maps(self, kin: Family) -> KnownMaps:
        """Return the offset maps that tell where readers of a family's remote topics go on."""
        if not kin.web:
            return self.known_maps(kin.flows)
        return with_recorded(self.known_maps, self.lake, kin.all_flows, target=kin.flows[0].target)

    def _group_sides(self, flow: FlowConfig) -> groups_step.GroupSides:
        return groups_step.GroupSides(
            source=Groups(flow.source, self.reader_options(flow.source)),
            target=Groups(flow.target, self.reader_options(flow.target)),
            source_admin=self.admin(flow.source),
            target_admin=self.admin(flow.target),
        )

    def group_sync(self, flow: FlowConfig, *, recorded: bool = False) -> groups_step.GroupSync:
        """Build the group sync of a flow, which reads, plans and sets its groups; `recorded` reads their positions from the lake."""
        if self.config.cluster(flow.source).is_lake:
            target = Groups(flow.target, self.reader_options(flow.target))
            nobody = GroupPlan(flow.name, ())
            kept = GroupRecords(self.lake, flow, self.now)
            return groups_step.GroupSync(look=dict, plan=lambda _: nobody, target=target, records=kept, sources={})
        sides = self._group_sides(flow)
        lost = {flow.source} if recorded else set[str]()

        def positions_of(each: FlowConfig) -> CommittedPositions:
            # The groups of this flow, wherever they read: another flow's own selection may leave some of them out.
            chosen = flow.group_selection
            if self.config.cluster(each.source).is_lake:
                return {}
            if each.source in lost:
                return recorded_positions(self.lake, each, selection=chosen)
            groups = Groups(each.source, self.reader_options(each.source))
            try:
                admin = self.admin(each.source)
                return groups_step.source_positions(self.lake, each, groups=groups, admin=admin, selection=chosen)
            except ClusterError:
                if each.name == flow.name:
                    raise
                # What a group has read is only ever more: the last known position is never ahead.
                return recorded_positions(self.lake, each, selection=chosen)

        def look() -> FamilyPositions:
            mine = positions_of(flow)
            if not mine:
                return {}
            # A target with one flow has no merged topics: a pass then costs no look at the metadata.
            lonely = len(self.config.flows_to(flow.target)) == 1 and not flow.adds_hops
            beside = () if lonely else self.family(flow).all_flows[1:]
            seen = {flow.name: mine}
            for each in beside:
                # In a mesh several flows carry one topic of one source: its groups are asked once.
                alike = next((other for other in seen if _reads_alike(self.config.flow(other), each)), None)
                seen[each.name] = seen[alike] if alike is not None else positions_of(each)
            return seen

        def plan(positions: FamilyPositions) -> GroupPlan:
            kin = self.family(flow)
            maps = partial(self.family_maps, kin)
            ends = self.ends(kin, lost=lost)
            return groups_step.plan_groups(self.lake, kin, positions, maps=maps, sides=sides, ends=ends, now=self.now())

        records = GroupRecords(self.lake, flow, self.now)
        tell = partial(tell_checkpoints, self._mm2_writer(flow)) if flow.mm2.checkpoints else len
        web = [each for each in self.config.flows if each.adds_hops] if flow.adds_hops else [flow]
        sources = {each.name: each.source for each in web}
        return groups_step.GroupSync(
            look=look, plan=plan, target=sides.target, records=records, sources=sources, tell=tell
        )

    def _mm2_writer(self, flow: FlowConfig) -> Mm2Writer:
        if flow.name not in self._mm2_writers:
            cluster, admin = self.config.cluster(flow.target), self.admin(flow.target)
            self._mm2_writers[flow.name] = mm2_writer(flow, cluster, admin, now=self.now)
        return self._mm2_writers[flow.name]
