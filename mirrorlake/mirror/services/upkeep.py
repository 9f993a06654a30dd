"""Keep the lake of a mirror small, and the ledgers of its flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, MirrorlakeError, SafetyError, StoreError, UsageError
from mirrorlake.kafka import TombstoneWriter
from mirrorlake.lag import SIGN_TIMEOUT, count_waiting
from mirrorlake.lake import AUDIT, StreamSign, flow_sign, landed_positions
from mirrorlake.maintenance import (
    CHOICES,
    REWRITE,
    TOMBSTONE,
    ErasedTargets,
    Eraser,
    Erasure,
    Guard,
    LakeUpkeep,
    Maintained,
    Retirement,
    Selector,
    SentUpTo,
    TrimmedLedger,
    quarantined_by,
    replaying,
    sending_again,
    transactional_id_of,
)
from mirrorlake.model.control import KNOWN_FLOW, RETIRE, Subject
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.plan import Change
from mirrorlake.replay import EXPORT, Register
from mirrorlake.republish import LedgerCopy, merged_positions, read_lanes
from mirrorlake.runtime import Duty
from mirrorlake.topics import settings_in_force

_FIRST_S = 60.0
# A replay that nobody goes on with holds nothing back for ever.
_REPLAYS_FOR = timedelta(days=7)
# What says how long a topic keeps a record.
_KEEPING = ("cleanup.policy", "retention.ms", "retention.bytes")


class Upkeep:
    """Keep what one mirror writes to; safe while it runs, here or elsewhere."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def once(self, *, plan: bool = False, is_stopped: Callable[[], bool] = lambda: False) -> Maintained:
        """Do what is due (see `Mirror.maintain`)."""
        context = self._context
        config, lake = context.config, context.lake
        standing: dict[str, list[SentUpTo]] = {alias: [] for alias in config.sources}
        ledgers = []
        for flow in config.flows:
            found, trimmed = self._ledger(flow, plan=plan)
            standing[flow.source].append(found)
            ledgers.append(trimmed)
        for known in self._of_other_files():
            if known.flow.source in standing:
                standing[known.flow.source].append(known)
        upkeep = LakeUpkeep(
            lake,
            config.maintenance,
            now=context.now,
            clusters=config.clusters,
            needed=self._replays(),
            foreign_flows=self._foreign_flows(config.sources),
            is_stopped=is_stopped,
        )
        tables = upkeep.tables(standing, published=config.lake_clusters, plan=plan)
        return Maintained(planned=plan, tables=tuple(tables), ledgers=tuple(ledgers))

    def retire(self, flow: str, *, reason: str, apply: bool) -> Retirement:
        """Release the records that a flow holds back (see `Mirror.retire`)."""
        context = self._context
        config, control = context.config, context.control()
        state = control.state()
        if any(each.name == flow for each in config.flows):
            raise UsageError(
                f"{flow} is a flow of this settings file",
                consequence="nothing was retired",
                remedy="take it out of `flows` first; what it has not sent stays in the relay until then",
                flow=flow,
            )
        others = {each.name: each for each in settings_in_force.flows_of_other_files(config, state)}
        if flow in state.retired_flows:
            return Retirement(flow=flow, state="retired", is_repeat=True)
        if flow not in others:
            raise UsageError(
                f"the lake knows no flow {flow}",
                consequence="nothing was retired",
                remedy=f"name one of: {', '.join(others)}"
                if others
                else "every flow that it knows is in this settings file",
                flow=flow,
            )
        signed_ms = StreamSign(context.lake, flow_sign(flow)).read() or 0
        age_s = context.now().timestamp() - signed_ms / 1000
        if age_s < SIGN_TIMEOUT.total_seconds():
            raise SafetyError(
                f"{flow} was republished {age_s:.0f} s ago",
                consequence="it runs, so it was not retired",
                remedy="stop it, and run this again a minute later",
                flow=flow,
            )
        landed = landed_positions(context.lake, others[flow].source).reached
        waiting = {str(s): n for s, n in count_waiting(context.lake, others[flow], landed).items()}
        if apply:
            change = Change(
                where="lake", kind="flow", name=flow, action="retire", after=waiting, reason=reason, flow=flow
            )
            # First: a flow that is retired without a row in `audit` could not be explained later.
            context.audit().record([change], command="retire")
            control.append(RETIRE, Subject(kind=KNOWN_FLOW, name=flow), reason=reason)
        return Retirement(flow=flow, state="retired" if apply else "planned", waiting=waiting)

    def erase(self, source: str, topic: str, selector: Selector, *, reason: str, targets: str, apply: bool) -> Erasure:
        """Erase records, or say what would be (see `Mirror.erase`)."""
        context = self._context
        config = context.config
        if targets not in CHOICES:
            raise UsageError(
                f"targets is {targets}, which is none of {', '.join(CHOICES)}",
                consequence="nothing was erased",
                remedy="say what becomes of what was sent; see docs/erasure.md",
            )
        if config.cluster(source).is_lake:
            raise SafetyError(
                f"{source} is a lake cluster: its relay's history tells what was published, and is not rewritten",
                consequence="nothing was erased",
                remedy="publish a tombstone for the key, and let the targets compact; see docs/erasure.md",
                alias=source,
            )
        standing = [self._ledger(flow, plan=True)[0] for flow in config.flows if flow.source == source]
        standing += [known for known in self._of_other_files() if known.flow.source == source]
        eraser = Eraser(
            context.lake,
            source,
            standing,
            on_target=self._kept_there,
            now=context.now,
            foreign_flows=self._foreign_flows([source])[source],
            exports=list(dict.fromkeys(one.object for one in context.audit().entries(source, EXPORT))),
        )
        if not apply:
            return self._on_targets(eraser.plan(topic, selector, reason), eraser, selector, targets)
        context.lake.create_side_table(AUDIT)
        done = eraser.erase(topic, selector, reason)
        after = {"records": done.records + done.finished, "by": done.by, "removal": done.removal}
        after |= {"searched_files": done.searched, "still_in": [one.path for one in done.remains]}
        after["sent_to"] = list(done.sent_to)
        change = Change(where=source, kind="topic", name=topic, action="erase", after=after, reason=reason)
        context.audit().record([change], command="erase")
        told = self._on_targets(done, eraser, selector, targets)
        written = [
            Change(where=one.target, kind="topic", name=one.topic, action="write_tombstones", after=one.tombstones)
            for one in told.targets
            if one.tombstones
        ]
        context.audit().record(written, command="erase")
        return told

    def _on_targets(self, told: Erasure, eraser: Eraser, selector: Selector, choice: str) -> Erasure:
        """Do on the targets what was chosen, or say what would be done."""
        context = self._context
        if choice == REWRITE:
            return replace(told, choice=choice, commands=tuple(sending_again(told.targets, context.servers)))
        if choice != TOMBSTONE:
            return told
        erased = eraser.meant(told.topic, selector, planned=told.planned)
        found = ErasedTargets(
            context.lake,
            context,
            writer_of=lambda flow: TombstoneWriter(
                flow.target,
                producer=context.producer_options(flow),
                reader=context.reader_options(flow.target),
                transactional_id=transactional_id_of(flow),
            ),
            keys_held=lambda keys: eraser.keys_held(told.topic, keys, but=selector),
            now=context.now,
        )
        flow_of = context.config.flow
        own = {flow.name for flow in context.config.flows}
        targets = tuple(
            found.on(one, flow_of(one.flow), told.topic, erased, apply=not told.planned)
            if one.flow in own
            else replace(one, stays=f"{one.flow} belongs to another settings file: erase with that one, too")
            for one in told.targets
        )
        return replace(told, choice=choice, targets=targets)

    def _kept_there(self, standing: SentUpTo, topic: str) -> str:
        """Say how long a target keeps what was sent to it."""
        flow, remote = standing.flow, standing.flow.remote_topic(topic)
        try:
            state = self._context.admin(flow.target).describe([remote]).get(remote)
        except ClusterError:
            return f"not known: {flow.target} does not answer"
        except UsageError:
            return f"not known: this settings file has no cluster {flow.target}"
        if state is None:
            return f"not at all: {flow.target} has no {remote}"
        found = [f"{name}={state.configs[name]}" for name in _KEEPING if name in state.configs]
        rest = [] if len(found) == len(_KEEPING) else [f"the rest by the defaults of {flow.target}"]
        return ", ".join([*found, *rest])

    def duty(self, is_stopped: Callable[[], bool]) -> Duty:
        """Return the duty of a mirror that runs; what it could not do is logged, and tried again at its next turn."""

        def do() -> None:
            done = self.once(is_stopped=is_stopped)
            if not done.ok:
                raise StoreError(
                    "; ".join(done.why_not), consequence="the rest was kept", remedy="mirrorlake maintain tries again"
                )

        every_s = self._context.config.maintenance.every.total_seconds()
        # The streams need all cores for their start.
        return Duty(name="maintain", every_s=every_s, first_s=min(every_s, _FIRST_S), do=do)

    def _replays(self) -> dict[str, list[Guard]]:
        """Find the replays that were begun in the last week and are not done, by source."""
        context, found = self._context, dict[str, list[Guard]]()
        if not any(cluster.retention for cluster in context.config.clusters.values()):
            return found
        for name, one in Register(context.lake, context.audit()).all().items():
            if one.done_at is None and one.begun_at > context.now() - _REPLAYS_FOR:
                spans = {
                    SourcePartition(span.topic, span.generation, span.partition): (span.first, span.end)
                    for span in one.definition.spans
                }
                found.setdefault(one.definition.source, []).append(replaying(name, spans))
        return found

    def _foreign_flows(self, aliases: Iterable[str]) -> dict[str, list[str]]:
        """List, by source, the names under which records of the other sources are quarantined."""
        context = self._context
        others = settings_in_force.flows_of_other_files(context.config, context.control().state())
        names = [(flow.source, name) for flow in (*context.config.flows, *others) for name in quarantined_by(flow)]
        replays = Register(context.lake, context.audit()).all().values()
        names += [(one.definition.source, one.definition.name) for one in replays]
        return {alias: sorted({name for source, name in names if source != alias}) for alias in aliases}

    def _of_other_files(self) -> list[SentUpTo]:
        """Read how far flows of other settings files have sent, by the lake's copy of their ledgers, which is never ahead."""
        context = self._context
        flows = settings_in_force.flows_of_other_files(context.config, context.control().state())
        copies = [(flow, LedgerCopy(context.lake, flow.name, flow.source)) for flow in flows]
        return [SentUpTo(flow=flow, positions=copy.positions()) for flow, copy in copies]

    def _ledger(self, flow: FlowConfig, *, plan: bool) -> tuple[SentUpTo, TrimmedLedger]:
        context = self._context
        try:
            admin = context.admin(flow.target)
            with closing(context.ledger(flow)) as reader:
                last = read_lanes(reader, admin, flow.ledger_topic)
                standing = SentUpTo(flow=flow, positions=merged_positions(last))
                if plan or not last:
                    return standing, TrimmedLedger(flow=flow.name)
                copy = LedgerCopy(context.lake, flow.name, flow.source)
                return standing, TrimmedLedger(flow=flow.name, records=copy.trim(reader, admin, sorted(last)))
        except MirrorlakeError as error:
            # Without its position the flow is waited for.
            return SentUpTo(flow=flow, positions=None), TrimmedLedger(flow=flow.name, why_not=error.cause)
