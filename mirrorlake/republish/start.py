"""Decide whether a republisher may start, and whether it resumes from its checkpoint location."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import CheckpointLost, LedgerLost, SafetyError
from mirrorlake.lake import CheckpointLocation, KnownTopic, Lake, read_checkpoint_location
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.epochs import is_possible
from mirrorlake.model.flow import SourcePartition, kafka_name
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.republish.fencing import FencedLanes
from mirrorlake.republish.ledger_tables import LedgerCopy


@dataclass(frozen=True, slots=True)
class StreamLocation:
    """The numbered checkpoint location of a flow's stream; no backfill is due if the stream `resumes` there."""

    number: int
    path: str
    resumes: bool = False


def check_whole(flow: FlowConfig, last: Mapping[int, LedgerRecord | None]) -> None:
    """Refuse a ledger that lacks the last full record of a lane."""
    if what := _describe_partial(flow, last):
        raise _ledger_lost_error(flow, what)


def check_ledger(flow: FlowConfig, last: Mapping[int, LedgerRecord | None], copy: LedgerCopy, *, restore: bool) -> None:
    """Compare each lane's last ledger record with the other lanes and with the lake.

    Law F (repeatable): a ledger that lacks records of the lake is refused, and a complete one is never restored.

    Raises:
        LedgerLost: the ledger lacks records, and is not to be restored.
        SafetyError: the ledger is to be restored and lacks nothing, or it has an impossible epoch and is not to be restored.
    """
    what = _describe_partial(flow, last) or _describe_loss(flow, last, copy.copied_seqs)
    if not what and not any(last.values()) and copy.has_takeover():
        what = (
            f"the ledger {flow.ledger_topic} on {flow.target} is empty, but positions in the lake "
            f"show that {flow.name} has taken over from MirrorMaker 2"
        )
    impossible = [record for record in last.values() if record and not is_possible(record.claim.epoch)]
    if impossible and not restore:
        raise _impossible_epoch_error(flow, impossible[0])
    if what and not restore:
        raise _ledger_lost_error(flow, what)
    if restore and not what and not impossible:
        raise _complete_ledger_error(flow)


def check_origin(flow: FlowConfig, last: Mapping[int, LedgerRecord | None], cluster_id: str) -> None:
    """Compare the flow's source with that of the ledger's earlier owners, by cluster id.

    Law E: a flow of the same name in another settings file may read another cluster, whose offsets mean something else.
    """
    found = {record.claim.cluster_id for record in last.values() if record} - {""}
    if not cluster_id or found <= {cluster_id}:
        return
    raise SafetyError(
        f"the ledger {flow.ledger_topic} on {flow.target} belongs to a flow {flow.name} from cluster {min(found)}, but "
        f"{flow.source} has the cluster id {cluster_id}",
        consequence="its positions would skip records of this cluster; nothing was republished",
        remedy=f"give this flow a `name` of its own; if the other one is gone for good, delete the topic {flow.ledger_topic}",
        flow=flow.name,
    )


def check_generations(flow: FlowConfig, positions: Iterable[SourcePartition], known: Mapping[str, KnownTopic]) -> None:
    """Compare the generations of the ledger's positions with those that the lake knows.

    Law E: a new lake counts them anew, and a position of a topic that was deleted long ago would be one of the present topic.
    """
    for source in positions:
        # What the lake does not know, or the flow does not carry, has no record that could be skipped.
        if source.topic not in known or not flow.carries(source.topic):
            continue
        newest = known[source.topic].generation_of(source.partition)
        if source.generation > newest:
            raise SafetyError(
                f"the ledger {flow.ledger_topic} on {flow.target} knows generation {source.generation} of {source.topic}, but the "
                f"newest in this lake is {newest}: it belongs to a flow {flow.name} of another lake",
                consequence="its positions would skip records of this lake; nothing was republished",
                remedy="give this flow a `name` and a `policy` of its own, or go on with that lake",
                flow=flow.name,
            )


def check_slice(flow: FlowConfig, lanes: FencedLanes, selection: str) -> None:
    """Compare the slice to send with that of earlier owners of the same name.

    Law F (repeatable): a slice that was begun is completed as it was begun.
    """
    if any(scope.selection != selection for scope in lanes.scopes):
        raise SafetyError(
            f"the ledger {flow.ledger_topic} on {flow.target} belongs to another {flow.name}, which sends other records",
            consequence="continuing it would skip some records and repeat others; nothing was sent",
            remedy="give this replay a name of its own with --name",
            flow=flow.name,
        )


def choose_location(
    lake: Lake, flow: FlowConfig, lanes: FencedLanes, scope: CheckpointScope, *, rebuild: bool
) -> StreamLocation:
    """Resume from the checkpoint location in use, or choose an unused one.

    A stream resumes only if it carries nothing that it skipped at that location, and if a batch was finished: before that, Spark
    would begin again at the first version of the relay.
    """
    used, folder = lanes.checkpoint_location, f"{lake.checkpoint_root()}/republish/{kafka_name(flow.name)}"
    if used and not rebuild and all(scope.continues(before) for before in lanes.scopes):
        seen = read_checkpoint_location(lake, f"{folder}/{used}")
        if lanes.batch > seen.last_planned:
            raise _checkpoint_lost_error(flow, seen, lanes.batch)
        # Spark plans a second batch when the first is finished.
        if seen.last_committed >= 0 or seen.last_planned > 0:
            return StreamLocation(used, seen.path, resumes=True)
    number = used + 1
    # If the ledger was lost with its numbers, an older location of the flow may have the next number.
    while not used and read_checkpoint_location(lake, f"{folder}/{number}").has_progress:
        number += 1
    return StreamLocation(number, f"{folder}/{number}")


def _describe_partial(flow: FlowConfig, last: Mapping[int, LedgerRecord | None]) -> str:
    partial = next((record for record in last.values() if record and not record.is_whole), None)
    if partial is None:
        return ""
    return (
        f"lane {partial.claim.lane} of the ledger {flow.ledger_topic} on {flow.target} lacks its last full record "
        f"{partial.base_seq}: record {partial.seq} holds only the positions that changed since"
    )


def _describe_loss(flow: FlowConfig, last: Mapping[int, LedgerRecord | None], copied_seqs: Mapping[int, int]) -> str:
    place = f"of the ledger {flow.ledger_topic} on {flow.target}"
    for lane, seq in copied_seqs.items():
        record = last.get(lane)
        if record is None or record.seq < seq:
            found = "holds nothing" if record is None else f"ends at record {record.seq}"
            return f"lane {lane} {place} {found}, but the offset map in the lake holds record {seq}"
    # No worker sends before its owner has claimed every lane, so each lane must have a record of that epoch or a later one.
    sent = [record.claim for record in last.values() if record is not None and (record.runs or record.withheld)]
    for claim in sent:
        for lane in range(claim.lanes):
            other = last.get(lane)
            if other is None or other.claim.epoch < claim.epoch:
                found = "holds nothing" if other is None else f"ends in epoch {other.claim.epoch}"
                return f"lane {lane} {place} {found}, but lane {claim.lane} has sent in epoch {claim.epoch}"
    return ""


def _ledger_lost_error(flow: FlowConfig, what: str) -> LedgerLost:
    return LedgerLost(
        what,
        consequence="without the ledger every record would be sent again; nothing was republished",
        remedy=f"if the remote topics are as they were: mirrorlake republish --flow '{flow.name}' "
        "--restore-ledger (continues from the furthest position in the ledger or the lake; only records sent after "
        f"both are sent again); if {flow.target} was emptied: give the flow a new name in the settings, and it gets "
        "everything from the relay",
        flow=flow.name,
    )


def _impossible_epoch_error(flow: FlowConfig, record: LedgerRecord) -> SafetyError:
    claim = record.claim
    return SafetyError(
        f"lane {claim.lane} of the ledger {flow.ledger_topic} on {flow.target} ends in epoch {claim.epoch}: no owner of "
        "the flow can have reached it, unless the clock of its machine was centuries ahead",
        consequence="mirrorlake could not tell a later owner from an earlier one; nothing was republished",
        remedy=f"if nobody else writes to {flow.ledger_topic}: mirrorlake republish --flow '{flow.name}' "
        "--restore-ledger (keeps every position, and counts the epochs from the clock of today)",
        flow=flow.name,
    )


def _complete_ledger_error(flow: FlowConfig) -> SafetyError:
    return SafetyError(
        f"the ledger {flow.ledger_topic} on {flow.target} is complete",
        consequence="nothing was restored or republished",
        remedy=f"mirrorlake republish --flow '{flow.name}', without --restore-ledger",
        flow=flow.name,
    )


def _checkpoint_lost_error(flow: FlowConfig, seen: CheckpointLocation, batch: int) -> CheckpointLost:
    return CheckpointLost(
        f"the checkpoint location {seen.path} {seen.ending}, but the ledger of {flow.name} holds batch {batch} of it",
        consequence="Spark would start at its first batch again; nothing was republished",
        remedy=f"mirrorlake republish --flow '{flow.name}' --rebuild-checkpoint (continues from the ledger's positions)",
        location=seen.path,
        flow=flow.name,
    )
