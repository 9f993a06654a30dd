"""The commits of consumer groups, read from their clusters or as the lake last recorded them."""

from __future__ import annotations

from mirrorlake.config.schema import FlowConfig, NameMatcher
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, MirrorlakeError
from mirrorlake.kafka import Committed
from mirrorlake.lake import Lake, SourceTopics
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.offsets import Positions, PositionsByFlow, related_flows


def committed_positions(
    context: Context, flow: FlowConfig, *, recorded: bool = False, unsure: dict[str, MirrorlakeError]
) -> PositionsByFlow:
    """Return the commits of a flow's groups on its source and on the sources of flows that share its topics.

    {} if the groups have committed nothing on the flow's own source. `recorded` takes the positions on that source
    from the lake. `unsure` gets groups (see `Groups.committed_each`); one that a source hides has no position at all (law A).

    NotAuthorized if the source hides its groups.
    """
    config, lost = context.config, {flow.source} if recorded else set[str]()
    mine = _positions(context, flow, flow, lost, unsure)
    if not mine:
        return {}
    seen = {flow.name: mine}
    # A target with one flow has no merged topics: a pass then needs no metadata.
    if len(config.flows_to(flow.target)) == 1 and not flow.adds_hops:
        return seen
    for each in related_flows(context.lake, flow, config.flows).all_flows[1:]:
        seen[each.name] = _positions(context, each, flow, lost, unsure)
    unread = {group for group, why in unsure.items() if isinstance(why, ClusterError)}
    return {name: {key: at for key, at in here.items() if key[0] not in unread} for name, here in seen.items()}


def _positions(
    context: Context, each: FlowConfig, flow: FlowConfig, lost: set[str], unsure: dict[str, MirrorlakeError]
) -> Positions:
    # The groups of the flow itself, on every source: another flow's own selection may leave some of them out.
    selection = flow.group_selection
    if context.config.cluster(each.source).is_lake:
        return {}
    if each.source not in lost:
        try:
            found = source_positions(context, each, selection=selection, unsure=unsure)
            for name, error in context.groups(each.source).refusals(flow.groups).items():
                if not found:
                    raise error
                # The other names were made up for a pattern, of which some groups may be seen.
                if selection.matches(name) and error.facts["name"] == name:
                    unsure[name] = error
            return found
        except ClusterError:
            if each.name == flow.name:
                raise
    # A group only reads on, so its last known position is never ahead.
    return {
        (group, source): Committed(offset)
        for (group, source), offset in newest_positions(context.lake, each.source).items()
        if each.carries(source.topic) and selection.matches(group)
    }


def source_positions(
    context: Context, flow: FlowConfig, *, selection: NameMatcher, unsure: dict[str, MirrorlakeError]
) -> Positions:
    """Return the commits of selected groups on the topics that a flow carries.

    Groups of every protocol count, with and without members. Groups without a commit on these topics are left out,
    and so are the mirror's own.
    """
    groups = context.groups(flow.source)
    names = [name for name in groups.states() if selection.matches(name) and not name.startswith("mirrorlake.")]
    if not names:
        return {}
    known = SourceTopics(context.lake, flow.source).load()
    # A topic that was created again and not landed since would be read with the old generation's map.
    partitions = [
        TopicPartition(name, p)
        for name, state in context.admin(flow.source).describe(known).items()
        if flow.carries(name) and state.topic_id == known[name].topic_id
        for p in range(state.partitions)
    ]
    return {
        (group, SourcePartition(tp.topic, known[tp.topic].generation_at(tp.partition, held.offset), tp.partition)): held
        for group, committed in groups.committed(names, partitions, unsure=unsure).items()
        for tp, held in committed.items()
    }


def newest_positions(lake: Lake, alias: str) -> dict[tuple[str, SourcePartition], int]:
    """Return the newest recorded position of every group on each partition of a cluster, over all its generations."""
    # A sample records a vanished position as NULL; the last known one counts.
    rows = lake.query_rows(
        "SELECT group_id, topic, partition, max_by(generation, observed_at) AS generation, "
        "max_by(position, observed_at) AS position FROM {positions} "
        "WHERE source = :source AND kind = 'group' AND position IS NOT NULL GROUP BY group_id, topic, partition",
        source=alias,
    )
    known = SourceTopics(lake, alias).load() if rows else {}
    found = {}
    for row in rows:
        topic, life = known.get(row.topic), row.generation
        if topic is not None and life in {topic.generation, *(cut.generation for cut in topic.truncations)}:
            # By the offset, as `source_positions` does.
            life = topic.generation_at(row.partition, int(row.position))
        found[row.group_id, SourcePartition(row.topic, life, row.partition)] = int(row.position)
    return found
