"""What stops a lane, in words: who holds it now, what the target refused, what never came."""

from __future__ import annotations

from confluent_kafka import KafkaError

from mirrorlake.errors import ClusterError, ClusterUnreachable, LaneFenced, LedgerLost, MirrorlakeError
from mirrorlake.kafka.errors import Border, Need
from mirrorlake.kafka.lane.batch import Restart, is_too_large
from mirrorlake.kafka.lane.task import LaneTask
from mirrorlake.model.flow import ledger_topic, transactional_id
from mirrorlake.model.ledger import LedgerRecord


class Faults:
    """Make the errors of one lane."""

    def __init__(self, task: LaneTask) -> None:
        self._task = task
        self._ledger = ledger_topic(task.flow)

    def fenced(self, why: str) -> LaneFenced:
        """Say that another owner holds the lane."""
        task = self._task
        return LaneFenced(
            f"lane {task.lane} of {task.flow} belongs to another republisher: {why}",
            consequence="this one wrote nothing more and stopped",
            remedy=f"keep one republisher for {task.flow}; `mirrorlake status` shows its progress",
            flow=task.flow,
        )

    def tail_lost(self, known: int, last: LedgerRecord | None) -> LedgerLost:
        """Say that the ledger's tail is older than what this owner has confirmed there."""
        task = self._task
        found = "holds nothing" if last is None else f"ends at record {last.seq} of owner {last.owner}"
        return LedgerLost(
            f"lane {task.lane} of the ledger {self._ledger} on {task.target} {found}, but its owner {task.owner} has "
            f"confirmed record {known}",
            consequence="what was sent since would be sent again; nothing more was sent",
            remedy=f"run mirrorlake republish --flow '{task.flow}' again: it compares the ledger with the lake before it "
            "sends",
            flow=task.flow,
        )

    def never_helped(self, restart: Restart) -> MirrorlakeError:
        """Say what a lane waited for in vain."""
        if restart.last is not None:
            return restart.last
        if restart.problem is not None:
            return self.of(restart.problem, restart.doing)
        task = self._task
        return ClusterUnreachable(
            f"cluster {task.target} did not {restart.doing} within {task.patience_s:.0f} s",
            consequence=f"{task.flow} stopped; everything that was confirmed stands in its ledger",
            remedy=f"bring {task.target} back, then run the same command again",
            alias=task.target,
        )

    def of(self, problem: KafkaError, doing: str, *topics: str) -> ClusterError:
        """Say what the target answered."""
        task = self._task
        needs = [Need(operation="WRITE", resource="TOPIC", name=topic) for topic in topics]
        needs += [Need(operation="WRITE", resource="TRANSACTIONAL_ID", name=transactional_id(task.flow, task.lane))]
        return Border.of(task.target, task.options).error(problem, doing, *needs)

    def refused(self, problem: KafkaError, doing: str, *, record: LedgerRecord | None = None) -> ClusterError:
        """Say that the target did not take a ledger record."""
        if not is_too_large(problem):
            return self.of(problem, doing, self._ledger)
        task, size = self._task, f" of {len(record.to_json())} bytes" if record else ""
        return ClusterError(
            f"{task.target} refuses a record{size} for the ledger {self._ledger}: larger than the topic's max.message.bytes",
            consequence=f"{task.flow} stopped before the records that it covers were confirmed",
            remedy=f"raise max.message.bytes of {self._ledger} on {task.target}, then run the same command again",
            alias=task.target,
        )
