"""The errors of a lane: which of them a new producer may resolve, and the messages of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError

from mirrorlake.errors import ClusterError, ClusterUnreachable, LaneFenced, LedgerLost, LoginRefused, MirrorlakeError
from mirrorlake.kafka.errors import ClientErrors, Need
from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.model.flow import ledger_topic, transactional_id
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.owner import said_owner

_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
# Settings of the topic refuse a record: its time, or a null key where the log is compacted.
_REFUSED = {
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001
}
_REPLACED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001
# These come again after every restart.
PERMANENT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.TOPIC_EXCEPTION,
}


class RestartProducer(Exception):
    """Start the protocol again with a new producer; `last` is raised if that never helps."""

    def __init__(self, problem: KafkaError | None, doing: str, *, last: MirrorlakeError | None = None) -> None:
        self.problem = problem
        self.doing = doing
        self.last = last
        super().__init__(f"{doing}: {problem}")


class RestartWithReports(RestartProducer):
    """Start again, and request a delivery report of each record: the ends of the chunk do not tell enough."""


@contextmanager
def restarting_if_unreachable(doing: str) -> Iterator[None]:
    """Start again if the target is unreachable.

    A refused login is raised: a task does not read its secret again, but the next one does.
    """
    try:
        yield
    except LoginRefused:
        raise
    except ClusterUnreachable as error:
        raise RestartProducer(None, doing) from error


def is_too_large(problem: KafkaError | None) -> bool:
    return problem is not None and (problem.code() in _TOO_LARGE or "Message size too large" in str(problem))


def is_refused(problem: KafkaError | None) -> bool:
    """Return whether a target refuses a record, which is too large or against its topic's settings."""
    return problem is not None and (problem.code() in _REFUSED or is_too_large(problem))


def is_replaced(problem: KafkaError) -> bool:
    return problem.code() in _REPLACED or problem.fatal()


def is_contested(error: BaseException) -> bool:
    """Return whether a claim failed because another producer fenced the claimant first; a second claim may succeed."""
    return isinstance(error, LaneFenced) and bool(error.facts.get("contested"))


def fenced_error(what: str, why: str, *, flow: str, **facts: Any) -> LaneFenced:
    """Return the error of an owner that another republisher has fenced, in a flow or in the part of it that `what` names."""
    return LaneFenced(
        f"{what} belongs to another republisher: {why}",
        consequence="this republisher stopped and wrote nothing more",
        remedy=f"run only one republisher for {flow}; `mirrorlake status` shows its progress",
        flow=flow,
        **facts,
    )


class Faults:
    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec
        self._lane = spec.claim.lane
        self._flow = spec.claim.flow
        self._ledger = ledger_topic(spec.claim.flow)

    def fenced_error(self, why: str, *, contested: bool = False) -> LaneFenced:
        return fenced_error(f"lane {self._lane} of {self._flow}", why, flow=self._flow, contested=contested)

    def tail_lost_error(self, known: int, last: LedgerRecord | None) -> LedgerLost:
        """Return the error that the ledger's tail is older than what this owner has confirmed there."""
        found = "holds nothing" if last is None else f"ends at record {last.seq} of {said_owner(last.claim.owner)}"
        return LedgerLost(
            f"lane {self._lane} of the ledger {self._ledger} on {self._spec.target} {found}, but its owner "
            f"{said_owner(self._spec.claim.owner)} has confirmed record {known}",
            consequence="records sent since then would be sent again; nothing more was sent",
            remedy=f"run mirrorlake republish --flow '{self._flow}' again: it compares the ledger with the lake before it "
            "sends",
            flow=self._flow,
        )

    def gave_up_error(self, restart: RestartProducer) -> MirrorlakeError:
        """Return the error of a lane that no restart helped within its `retry_timeout_s`."""
        if restart.last is not None:
            return restart.last
        if restart.problem is not None:
            return self.cluster_error(restart.problem, restart.doing)
        target = self._spec.target
        return ClusterUnreachable(
            f"cluster {target} did not {restart.doing} within {self._spec.retry_timeout_s:.0f} s",
            consequence=f"{self._flow} stopped; its ledger holds everything that was confirmed",
            remedy=f"bring {target} back, then run the same command again",
            alias=target,
        )

    def cluster_error(self, problem: KafkaError, doing: str, *topics: str) -> ClusterError:
        needs = [Need("WRITE", "TOPIC", topic) for topic in topics]
        needs += [Need("WRITE", "TRANSACTIONAL_ID", transactional_id(self._flow, self._lane))]
        return ClientErrors.from_options(self._spec.target, self._spec.options).to_cluster_error(problem, doing, *needs)

    def refused_record_error(
        self, problem: KafkaError, doing: str, *, record: LedgerRecord | None = None
    ) -> ClusterError:
        if not is_too_large(problem):
            return self.cluster_error(problem, doing, self._ledger)
        target, size = self._spec.target, f" of {len(record.to_json())} bytes" if record else ""
        return ClusterError(
            f"{target} refuses a record{size} for the ledger {self._ledger}: larger than the topic's max.message.bytes",
            consequence=f"{self._flow} stopped before the records that it covers were confirmed",
            remedy=f"raise max.message.bytes of {self._ledger} on {target}, then run the same command again",
            alias=target,
        )
