"""What a republisher needs before it follows the relay: what is to be caught up, and what forbids to begin at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import CheckpointLost, LedgerLost
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.relay.files import RelayFile
from mirrorlake.relay.progress import CheckpointLocation


def rounds(files: list[RelayFile], records: int) -> Iterable[list[RelayFile]]:
    """Cut sorted files into rounds of about `records`; files of one source partition that lie over one another stay together."""
    part: list[RelayFile] = []
    held = 0
    # By offset across partitions, so that all lanes have work in every round.
    stretches = sorted(_stretches(files), key=lambda s: (s[0].source.generation, s[0].first_offset, s[0].source))
    for stretch in stretches:
        part += stretch
        held += sum(file.records for file in stretch)
        if held >= records:
            yield sorted(part)
            part, held = [], 0
    if part:
        yield sorted(part)


def _stretches(files: Iterable[RelayFile]) -> list[list[RelayFile]]:
    found: list[list[RelayFile]] = []
    reached = -1
    for file in sorted(files):
        if found and found[-1][0].source == file.source and file.first_offset <= reached:
            found[-1].append(file)
            reached = max(reached, file.last_offset)
        else:
            found.append([file])
            reached = file.last_offset
    return found


def between(relay: DataFrame, files: list[RelayFile]) -> DataFrame:
    """Return the records that the files hold, for the feeder `spark`."""
    rows = [(f.source.topic, f.source.generation, f.source.partition, f.first_offset, f.last_offset) for f in files]
    spans = relay.sparkSession.createDataFrame(
        rows, "topic string, generation int, partition int, first bigint, last bigint"
    )
    return relay.join(F.broadcast(spans), ["topic", "generation", "partition"]).where("offset between first and last")


def checkpoint_lost(flow: FlowConfig, seen: CheckpointLocation, batch: int) -> CheckpointLost:
    """Return the refusal of a checkpoint location that lacks a batch which the ledger knows."""
    what = f"plans end at batch {seen.last_planned}" if seen.has_progress else "holds no offsets/ and commits/ any more"
    return CheckpointLost(
        f"the checkpoint location {seen.path} {what}, but the ledger of {flow.name} holds batch {batch} of it",
        consequence="Spark would start again at its first batch as if nothing had happened; nothing was republished",
        remedy=f"mirrorlake republish --flow '{flow.name}' --rebuild-checkpoint (goes on at the ledger's positions)",
        location=seen.path,
        flow=flow.name,
    )


def refuse_if_ledger_lost(flow: FlowConfig, last: Mapping[int, LedgerRecord | None], held: Mapping[int, int]) -> None:
    """Compare the last ledger record of each lane with the newest that the offset map holds.

    Raises:
        LedgerLost: the ledger is behind.
    """
    for lane, seq in held.items():
        record = last.get(lane)
        if record is None or record.seq < seq:
            found = "holds nothing" if record is None else f"ends at record {record.seq}"
            raise LedgerLost(
                f"lane {lane} of the ledger {flow.ledger_topic} on {flow.target} {found}, but the offset map in the "
                f"lake holds record {seq}",
                consequence="without the ledger every record would be sent again; nothing was republished",
                remedy=f"if the remote topics are as they were: mirrorlake republish --flow '{flow.name}' "
                f"--restore-ledger (goes on after the offset map's positions); if {flow.target} was emptied: give the "
                "flow a new name in the settings, and it gets everything from the relay",
                flow=flow.name,
            )
