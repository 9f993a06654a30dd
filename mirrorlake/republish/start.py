"""How a republisher starts: what forbids it to start at all, and whether it can go on from its checkpoint location."""

from __future__ import annotations

from collections.abc import Mapping

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.errors import CheckpointLost, LedgerLost, SafetyError
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landed import CheckpointLocation, read_checkpoint_location
from mirrorlake.model.checkpoint_scope import Carried
from mirrorlake.model.epochs import is_possible
from mirrorlake.model.flow import SourcePartition, kafka_name
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.remotes import Remote
from mirrorlake.republish.fencing import FencedLanes
from mirrorlake.republish.ledger_tables import LedgerCopy


class Start:
    """Judge one start of a flow.

    Law F (repeatable): a ledger that knows less than the lake is refused, and what is restored is the furthest of both; a
    ledger that is whole is never restored. A checkpoint location is gone on from only where a batch of it was finished:
    before that, Spark would begin again at the first version of the relay.

    Args:
        lake: the lake.
        flow: the flow.
        copy: the lake's copies of the ledger, loaded.
        restore: start from the lake's positions, too, after the ledger was lost.
    """

    def __init__(
        self,
        lake: Lake,
        flow: FlowConfig,
        copy: LedgerCopy,
        *,
        restore: bool,
    ) -> None:
        self._lake = lake
        self._flow = flow
        self._copy = copy
        self._restore = restore
        self._went_on_from = 0

    def check(self, last: Mapping[int, LedgerRecord | None]) -> None:
        """Compare the last ledger record of each lane with one another and with what the lake holds.

        Raises:
            LedgerLost: the ledger lacks records, and is not to be restored.
            SafetyError: the ledger is to be restored, and lacks nothing; or it names an epoch that nobody can have
                reached, and is not to be restored.
        """
        what = what_was_lost(self._flow, last, self._copy.held)
        if not what and not any(last.values()) and self._copy.has_takeover():
            what = (
                f"the ledger {self._flow.ledger_topic} on {self._flow.target} holds nothing, but positions in the lake "
                f"say that {self._flow.name} took another mirror over"
            )
        impossible = [record for record in last.values() if record and not is_possible(record.epoch)]
        if impossible and not self._restore:
            raise _epoch_impossible(self._flow, impossible[0])
        if what and not self._restore:
            raise _ledger_lost(self._flow, what)
        if self._restore and not what and not impossible:
            raise _ledger_whole(self._flow)

    def restored(self) -> dict[SourcePartition, int]:
        """Tell the positions that the lake adds to those of the ledger; none where nothing is restored."""
        return self._copy.positions() if self._restore else {}

    def known(self, remotes: Mapping[str, Remote]) -> dict[str, Remote]:
        """Tell the remote topics by the ledger, and where it is restored by the lake, of what the ledger lost."""
        return {**(self._copy.remotes() if self._restore else {}), **remotes}

    def choose_checkpoint(self, lanes: FencedLanes, carried: Carried, *, rebuild: bool) -> int:
        """Choose the number of the checkpoint location.

        Args:
            lanes: the lanes, which name the one in use and its newest batch.
            carried: what the flow carries now.
            rebuild: use a new one in any case.

        Raises:
            CheckpointLost: the checkpoint location lacks a batch that the ledger knows.
        """
        used = lanes.checkpoint
        if rebuild or not used or not _goes_on(lanes, carried):
            return self._unused(used)
        seen = read_checkpoint_location(self._lake, self.checkpoint_path(used))
        if lanes.batch > seen.last_planned:
            raise _checkpoint_lost(self._flow, seen, lanes.batch)
        if not seen.has_finished_a_batch:
            return self._unused(used)
        self._went_on_from = used
        return used

    def resumes(self, checkpoint: int) -> bool:
        """Tell whether the stream goes on in a checkpoint location, so that no backfill is due."""
        return checkpoint == self._went_on_from

    def checkpoint_path(self, number: int) -> str:
        """Return where a checkpoint location of the flow is."""
        return f"{self._lake.checkpoint_root()}/republish/{kafka_name(self._flow.name)}/{number}"

    def _unused(self, used: int) -> int:
        number = used + 1
        # Where the ledger was lost with its numbers, a location of the flow's earlier life may have the next one.
        while not used and read_checkpoint_location(self._lake, self.checkpoint_path(number)).has_progress:
            number += 1
        return number


def _goes_on(lanes: FencedLanes, carried: Carried) -> bool:
    """Tell whether nothing that the flow carries now was stepped over in the checkpoint location."""
    texts = {record.carried for record in lanes.last.values() if record and record.checkpoint == lanes.checkpoint}
    return all(carried.continues(Carried.read(text)) for text in texts)


def what_was_lost(flow: FlowConfig, last: Mapping[int, LedgerRecord | None], held: Mapping[int, int]) -> str:
    """Say what the ledger lacks, told by its lanes and by the newest record of each lane that the lake holds."""
    place = f"of the ledger {flow.ledger_topic} on {flow.target}"
    for lane, seq in held.items():
        record = last.get(lane)
        if record is None or record.seq < seq:
            found = "holds nothing" if record is None else f"ends at record {record.seq}"
            return f"lane {lane} {place} {found}, but the offset map in the lake holds record {seq}"
    # No worker sends before its owner has claimed every lane, so each of them holds a record of that epoch or a later one.
    sent = [record for record in last.values() if record is not None and (record.runs or record.withheld)]
    for record in sent:
        for lane in range(record.lanes):
            other = last.get(lane)
            if other is None or other.epoch < record.epoch:
                found = "holds nothing" if other is None else f"ends in epoch {other.epoch}"
                return f"lane {lane} {place} {found}, but lane {record.lane} has sent in epoch {record.epoch}"
    return ""


def _ledger_lost(flow: FlowConfig, what: str) -> LedgerLost:
    return LedgerLost(
        what,
        consequence="without the ledger every record would be sent again; nothing was republished",
        remedy=f"if the remote topics are as they were: mirrorlake republish --flow '{flow.name}' "
        "--restore-ledger (goes on at the furthest position that the ledger or the lake knows; only what was sent after "
        f"both is sent again); if {flow.target} was emptied: give the flow a new name in the settings, and it gets "
        "everything from the relay",
        flow=flow.name,
    )


def _epoch_impossible(flow: FlowConfig, record: LedgerRecord) -> SafetyError:
    return SafetyError(
        f"lane {record.lane} of the ledger {flow.ledger_topic} on {flow.target} ends in epoch {record.epoch}: no owner of "
        "the flow can have reached it, unless the clock of its machine was centuries ahead",
        consequence="a later owner could not be told from an earlier one; nothing was republished",
        remedy=f"if nobody else writes to {flow.ledger_topic}: mirrorlake republish --flow '{flow.name}' "
        "--restore-ledger (keeps every position, and counts the epochs from the clock of today)",
        flow=flow.name,
    )


def _ledger_whole(flow: FlowConfig) -> SafetyError:
    return SafetyError(
        f"the ledger {flow.ledger_topic} on {flow.target} lacks nothing that the lake knows",
        consequence="there is nothing to restore; nothing was republished",
        remedy=f"mirrorlake republish --flow '{flow.name}', without --restore-ledger",
        flow=flow.name,
    )


def _checkpoint_lost(flow: FlowConfig, seen: CheckpointLocation, batch: int) -> CheckpointLost:
    what = f"plans end at batch {seen.last_planned}" if seen.has_progress else "holds no offsets/ and commits/ any more"
    return CheckpointLost(
        f"the checkpoint location {seen.path} {what}, but the ledger of {flow.name} holds batch {batch} of it",
        consequence="Spark would start again at its first batch as if nothing had happened; nothing was republished",
        remedy=f"mirrorlake republish --flow '{flow.name}' --rebuild-checkpoint (goes on at the ledger's positions)",
        location=seen.path,
        flow=flow.name,
    )
