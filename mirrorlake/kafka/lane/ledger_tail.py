"""Read the tail of a lane's ledger: the record from which a new holder of the lane continues.

Law F (repeatable): a worker continues only from a tail of its own owner, at the sequence that the driver knows or later, read
up to the high watermark.
"""

from __future__ import annotations

from mirrorlake.kafka.lane.faults import Faults, RestartProducer, restarting_if_unreachable
from mirrorlake.kafka.lane.ledger_reader import LedgerReader
from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.model.flow import ledger_topic
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.owner import said_owner

# Later than every owner's epoch, so all records of the lane are read.
_NO_EPOCH = 2**63


def read_ledger_tail(spec: LaneSpec, *, epoch: int, allow_partial: bool = False) -> LedgerRecord | None:
    """Read the lane's newest ledger record, of any owner; `epoch` is known to have claimed the lane (`LedgerReader.last`).

    Records that fenced owners appended without transactions may follow it, in any number.

    Raises:
        RestartProducer: it cannot be read up to the high watermark now.
        LoginRefused: the target refuses the login.
    """
    topic, lane = ledger_topic(spec.claim.flow), spec.claim.lane
    with restarting_if_unreachable("read the ledger"), LedgerReader(spec.target, topic, spec.reader_options) as reader:
        last, unread = reader.last(lane, epoch=epoch, allow_partial=allow_partial), reader.unread
    if unread:
        raise RestartProducer(None, f"end the transaction that is open on {topic}-{lane}")
    return last


def read_any_tail(spec: LaneSpec) -> LedgerRecord | None:
    """Read the lane's newest ledger record for the driver of a new owner, whose claim carries the newest epoch that it knows.

    Without transactions owners are not fenced, and that epoch may not be the newest, so the whole lane is read. If the last
    full record is gone, the driver decides (`check_whole`): the lake may restore it.
    """
    return read_ledger_tail(spec, epoch=spec.claim.epoch if spec.exactly_once else _NO_EPOCH, allow_partial=True)


def read_own_tail(spec: LaneSpec, *, seq: int) -> LedgerRecord | None:
    """Read the lane's newest ledger record, at record `seq` or later, if the spec's owner may continue from it."""
    claim, faults = spec.claim, Faults(spec)
    last = read_ledger_tail(spec, epoch=claim.epoch)
    mine = last is not None and (last.claim.epoch, last.claim.owner) == (claim.epoch, claim.owner)
    if last is not None and last.claim.epoch >= claim.epoch and not mine:
        raise faults.fenced_error(
            f"{said_owner(last.claim.owner)} claimed it in epoch {last.claim.epoch}, this republisher in epoch {claim.epoch}"
        )
    known = max(seq, -1 if spec.seq is None else spec.seq)
    if (last.seq if last is not None else -1) < known or not (mine or spec.seq is None):
        raise RestartProducer(None, f"show record {known} of the ledger", last=faults.tail_lost_error(known, last))
    return last
