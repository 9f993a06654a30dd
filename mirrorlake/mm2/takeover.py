"""Take over from a stopped MirrorMaker 2: resume at its positions, repeating and skipping nothing (laws A, F, G).

    MirrorMaker's stored offsets   its record of replicated offsets (Connect's offsets topic, on the target)
    + the end of each remote       the records it has replicated since, when it was killed
    = the first ledger record      the positions at which the flow starts

A plan reads clusters only; it needs neither Spark nor the lake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import TakeoverRefused
from mirrorlake.kafka import ClusterAdmin, StoredOffsets, list_partitions, stored_offsets
from mirrorlake.kafka.lane import LaneSender, LaneSpec, ledger_spec
from mirrorlake.lake import GAPS, POSITIONS, Audit, SourceTopics, gap_row, position_row
from mirrorlake.mm2.locate import LocatedPosition
from mirrorlake.mm2.survey import Comparison, MirrorMakerWatch, OtherMirror
from mirrorlake.model.epochs import next_epoch, refuse_absurd_clock
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.owner import new_owner
from mirrorlake.model.plan import Change, Plan
from mirrorlake.model.remotes import Remote, known_id
from mirrorlake.render import Displayable, Sheet, badge, plural, table
from mirrorlake.republish import read_last_records


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTakeover:
    """The position at which one source partition resumes.

    `stored` is MirrorMaker's stored position (None without one), `already_there` the number of later records on the
    target, `compared` the number of equal records at the remote's end, `left_source` the number of offsets from
    `position` on that the source no longer has. `refused` is why the position is unknown, or "".
    """

    topic: str
    partition: int
    remote: str
    stored: int | None
    position: int
    already_there: int = 0
    compared: int = 0
    left_source: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TakeoverPlan(Displayable):
    """The result of a takeover, before it is applied; it is refused while `refused` is not empty.

    `configs` are the settings of each remote topic that equal the source's: MirrorMaker copied them, and the flow
    adopts them, so it resets them when the source drops them.
    """

    flow: str
    partitions: tuple[PartitionTakeover, ...] = ()
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """Every reason against the takeover."""
        own = tuple(f"{p.topic}-{p.partition}: {p.refused}" for p in self.partitions if p.refused)
        return (*self.reasons, *own)

    def sheet(self) -> Sheet:
        """Return every reason against it first, then the position of each partition."""
        columns = [
            "topic",
            "partition",
            "remote topic",
            "stored",
            "position",
            "already there",
            "compared",
            "left source",
        ]
        rows = [
            (
                *(p.topic, str(p.partition), p.remote, None if p.stored is None else str(p.stored), str(p.position)),
                *(p.already_there, p.compared, p.left_source),
            )
            for p in self.partitions
        ]
        return Sheet(
            title=f"takeover of {self.flow}",
            badge=badge("refused") if self.refused else badge("ok"),
            facts=(plural(len(self.partitions), "partition"),),
            parts=(
                *([table("", ["refused because"], [[reason] for reason in self.refused])] if self.refused else []),
                *([table("", columns, rows)] if rows else []),
                *([table("", ["note"], [[note] for note in self.notes])] if self.notes else []),
            ),
        )

    def changes(self, flow: FlowConfig) -> Plan:
        """Return the takeover as changes to the target, in the form of other plans."""
        change, ledger = partial(Change, where=flow.target), flow.ledger_topic
        after = {f"{p.topic}-{p.partition}": p.position for p in self.partitions}
        made = change(kind="ledger", name=ledger, action="create", after=after, reason="MirrorMaker 2 ended there")
        adopt = partial(
            change, kind="topic", action="adopt_configs", reason="MirrorMaker 2 copied them", flow=flow.name
        )
        return Plan((made, *(adopt(name=name, after=dict(held)) for name, held in sorted(self.configs.items()))))

    def check(self) -> None:
        """Raise `TakeoverRefused` with every reason, if there is one."""
        if self.refused:
            raise TakeoverRefused(
                f"{self.flow} cannot take over: {'; '.join(self.refused)}",
                consequence="nothing was changed",
                remedy=f"correct that, then run `mirrorlake takeover --flow '{self.flow}'` to see the new plan",
                flow=self.flow,
            )


def make_takeover_plan(
    context: Context, flow: FlowConfig, *, other: OtherMirror | None = None, trust_stored: bool = False
) -> TakeoverPlan:
    """Plan the position of each partition of the flow after MirrorMaker 2; reads the clusters and changes nothing.

    The source's alias and the policy of the flow must be MirrorMaker's; `other` is the location of its state.
    `trust_stored` uses the stored position if the records do not decide: right only after a clean stop.
    """
    other = other or OtherMirror()
    topic = other.offsets_topic or f"mm2-offsets.{flow.source}.internal"
    # The admin of a lake cluster raises before the target is called.
    _, target = context.admin(flow.source), context.admin(flow.target)
    reasons, notes = _of_the_flow(context, flow), list[str]()
    state = target.describe([topic]).get(topic)
    if state is None:
        there = [name for name in target.topic_names() if "offsets" in name and not name.startswith("__")]
        hint = f"; there are {', '.join(there)}" if there else ""
        return TakeoverPlan(
            flow=flow.name,
            reasons=(*reasons, f"{flow.target} has no topic {topic}: name Connect's with --offsets-topic{hint}"),
        )
    watch = MirrorMakerWatch(context, flow, other, offsets=[TopicPartition(topic, p) for p in range(state.partitions)])
    with context.reader(flow.target) as reader:
        held = stored_offsets(reader, topic, range(state.partitions), connector=other.connector, cluster=flow.source)
    notes += [f"skipped {skipped}" for skipped in held.skipped]
    left_out = sorted({place.topic for place in held.offsets if not flow.carries(place.topic)})
    if left_out:
        notes.append(
            f"MirrorMaker mirrored {', '.join(left_out)}, which the flow does not select: they stay as they are"
        )
    if not any(flow.carries(place.topic) for place in held.offsets):
        others = ", ".join(f"{connector} of {cluster}" for connector, cluster in held.others)
        hint = f"; it has those of {others}: see --connector, and name the clusters alike" if others else ""
        reasons.append(f"{topic} holds no offsets of {other.connector} for topics of {flow.name}{hint}")
    partitions = _partitions(context, flow, held, watch, trust_stored=trust_stored)
    reasons += watch.moved()
    lost = sum(p.left_source for p in partitions)
    if lost:
        notes.append(f"{lost} offsets left {flow.source} before anyone mirrored them; they become gaps (law E)")
    configs = _copied_configs(context, flow, {p.topic: p.remote for p in partitions if not p.refused})
    return TakeoverPlan(
        flow=flow.name, partitions=tuple(partitions), configs=configs, reasons=tuple(reasons), notes=tuple(notes)
    )


def _copied_configs(context: Context, flow: FlowConfig, remotes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    upstream = context.admin(flow.source).configs(remotes)
    downstream = context.admin(flow.target).configs(remotes.values())
    found: dict[str, dict[str, str]] = {}
    for topic, remote in remotes.items():
        wanted, held = flow.sync.config_sync.wanted(topic, upstream[topic]), downstream[remote]
        found[remote] = {key: value for key, value in wanted.items() if held.get(key) == value}
    return found


def _of_the_flow(context: Context, flow: FlowConfig) -> list[str]:
    reasons = []
    lanes = read_last_records(context, flow)
    if any(lanes.values()):
        known = any(record is not None and record.positions for record in lanes.values())
        reasons.append(
            f"{flow.ledger_topic} holds positions of its own: the flow has begun already, there is nothing to take over"
            if known
            else f"{flow.ledger_topic} has an owner already, though it has sent nothing: stop it and delete that topic"
        )
    if flow.start.kind != "earliest":
        reasons.append(
            f"start is {flow.start.plain()}, so records since MirrorMaker's end would not be landed: set earliest"
        )
    if flow.placement.kind != "keep":
        reasons.append("MirrorMaker keeps partition numbers and `placement` changes them: set placement: keep")
    return reasons


def _partitions(
    context: Context, flow: FlowConfig, held: StoredOffsets, watch: MirrorMakerWatch, *, trust_stored: bool
) -> list[PartitionTakeover]:
    on_source, on_target = context.admin(flow.source), context.admin(flow.target)
    sources = on_source.describe(sorted(name for name in on_source.topic_names() if flow.carries(name)))
    remotes = on_target.describe(flow.remote_topic(name) for name in sources)
    places = list_partitions(sources)
    source, target = _Ends(on_source, places), _Ends(on_target, list_partitions(remotes))
    watch.add(target.ends)
    found = []
    with Comparison(context, flow) as comparison:
        for place in places:
            last = held.offsets.get(place)
            remote = TopicPartition(flow.remote_topic(place.topic), place.partition)
            if last is None and not target.ends.get(remote):
                # Neither stored nor sent: the flow starts it like any new partition.
                continue
            row = PartitionTakeover(
                topic=place.topic,
                partition=place.partition,
                remote=remote.topic,
                stored=None if last is None else last + 1,
                position=0 if last is None else last + 1,
            )
            if why := _contradiction(row.position, place, remote, source, target):
                found.append(replace(row, refused=why))
                continue
            span = (source.firsts[place], source.ends[place], target.firsts[remote], target.ends[remote])
            answer = comparison.locate(row.position, place, remote, span)
            if isinstance(answer, LocatedPosition):
                row = replace(row, **asdict(answer))
            elif row.stored is None or not trust_stored:
                way = "; --trust-stored goes on there, right only after a clean stop" if row.stored is not None else ""
                why = f"{answer.why} (compared {remote} with what follows offset {row.position}{way})"
                row = replace(row, refused=why)
            if row.stored is not None:
                row = replace(row, left_source=max(0, source.firsts[place] - row.position))
            found.append(row)
    return found


class _Ends:
    """The first offsets and ends of partitions: with open transactions counted (`ends`) and without (`stable`)."""

    def __init__(self, admin: ClusterAdmin, places: Sequence[TopicPartition]) -> None:
        self.firsts, self.stable, self.ends = (
            admin.log_start_offsets(places),
            admin.last_stable_offsets(places),
            admin.high_watermarks(places),
        )


def _contradiction(position: int, place: TopicPartition, remote: TopicPartition, source: _Ends, target: _Ends) -> str:
    """Return why a comparison is useless, or "" if it is useful."""
    if remote not in target.ends:
        return f"there is no {remote}: is the flow's policy MirrorMaker's?"
    if target.stable[remote] < target.ends[remote]:
        return f"a transaction is open on {remote}; a killed MirrorMaker's is aborted after its time-out of 60 s"
    if position > source.ends[place]:
        return f"stored offset {position - 1} is past the source's end {source.ends[place]}: was the topic recreated?"
    return ""


def apply_takeover(context: Context, plan: TakeoverPlan) -> TakeoverPlan:
    """Write the flow's first ledger record, with every position, and return the plan; from then on the flow is mirrorlake's.

    One record in one lane has all positions, so it exists or not (law F); the next owner deals them out to the lanes
    (`merged_positions`). The tables are written first: without a ledger record they have no effect.

    `positions` records the takeover, for `verify`, and `gaps` the offsets lost before.

    Raises:
        TakeoverRefused: the plan is refused, or the flow began meanwhile; nothing was changed.
        LaneFenced: a republisher of the flow started at the same moment; nothing was changed.
    """
    flow, lake, now = context.config.flow(plan.flow), context.lake, context.now()
    plan.check()
    refuse_absurd_clock(now, flow=flow.name)
    lake.create_all([flow.source])
    topics = SourceTopics(lake, flow.source).load()
    positions = {
        SourcePartition(
            p.topic, topics[p.topic].generation_at(p.partition, p.position) if p.topic in topics else 1, p.partition
        ): p.position
        for p in plan.partitions
    }
    lake.append(
        POSITIONS,
        [
            position_row(flow.source, source, "taken_over", position, now, flow=flow.name)
            | {"target_topic": flow.remote_topic(source.topic)}
            for source, position in sorted(positions.items())
        ],
    )
    expired = [
        Gap(
            source=SourcePartition(p.topic, 1, p.partition),
            first_offset=p.position,
            last_offset=p.position + p.left_source - 1,
            missing=p.left_source,
            kind="expired",
        )
        for p in plan.partitions
        if p.left_source and p.topic not in topics
    ]
    lake.append(GAPS, [gap_row(flow.source, gap, now) for gap in expired])
    epoch = next_epoch([], now)
    names = {source.topic: flow.remote_topic(source.topic) for source in positions}
    states = context.admin(flow.target).describe({*names.values()})
    remotes = {t: Remote(name, known_id(states[name].topic_id)) for t, name in names.items() if name in states}
    context.admin(flow.target).create(ledger_spec(flow.ledger_topic, flow.lanes, flow.replication_factor))
    claim = Claim(flow=flow.name, lanes=flow.lanes, epoch=epoch, owner=new_owner())
    task = LaneSpec(
        claim=claim,
        target=flow.target,
        options=context.producer_options(flow),
        reader_options=context.reader_options(flow.target),
        exactly_once=flow.delivery == "exactly_once",
    )
    sender = LaneSender(task)
    try:
        if sender.open() is not None:
            raise TakeoverRefused(
                f"{flow.name} began while it was taken over",
                consequence="nothing was changed",
                remedy=f"`mirrorlake status --flow '{flow.name}'` shows where it stands",
                flow=flow.name,
            )
        at_ms = int(now.timestamp() * 1000)
        sender.claim(LedgerRecord(claim=claim, seq=0, positions=positions, remotes=remotes, committed_at_ms=at_ms))
    finally:
        sender.close()
    changes = plan.changes(flow)
    Audit(lake, now=lambda: now).record(changes.changes, command="takeover", plan=changes)
    return plan
