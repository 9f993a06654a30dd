"""Topics of a flow that cannot be sent now: each waits with its error, and the flow's other topics continue.

Laws D and F: lanes send nothing of a waiting topic, so its positions stay while others of the same lane move.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError, NotAuthorized, RecordTooLarge, StoreError, UnsendableRecord
from mirrorlake.lake import Control, is_whole_or_replaced
from mirrorlake.model.causes import root_cause
from mirrorlake.model.control import CLEAR, PARK, STREAM, Subject
from mirrorlake.model.parked import Parked, of_topics, topic_stream
from mirrorlake.model.policy import TopicNameError
from mirrorlake.timing import timing
from mirrorlake.topics import RemoteTopics

log = logging.getLogger(__name__)


class TopicsWait(Exception):
    """The set of waiting topics has changed in the middle of a batch: the flow must be claimed again."""


def topics_at_fault(error: MirrorlakeError, flow: FlowConfig, topics: Iterable[str]) -> frozenset[str]:
    """Return the source topics that an error is about alone, or none if it stops the whole flow."""
    facts = error.facts
    if isinstance(error, UnsendableRecord):
        return frozenset({facts["topic"]})
    if isinstance(error, RecordTooLarge) or (isinstance(error, StoreError) and "broken_file" in facts):
        # A broken file may have records of several topics.
        return frozenset(facts["source_topic"].split(","))
    if isinstance(error, NotAuthorized) and facts.get("resource") == "TOPIC":
        return frozenset(name for name in topics if flow.carries(name) and flow.remote_topic(name) == facts["name"])
    return frozenset()


def is_still_refused(error: MirrorlakeError, remotes: RemoteTopics, remote: str, *, limit: str | None) -> bool:
    """Return whether the cause of a topic's error persists; a conflict shows when its remote topic is made ready."""
    if isinstance(error, RecordTooLarge):
        return remotes.max_message_bytes(remote) == limit
    if isinstance(error, NotAuthorized):
        return not remotes.may_write(remote)
    if "allowed_at" in error.facts:
        return bool(time.monotonic() < error.facts["allowed_at"])
    if isinstance(error, StoreError):
        return not is_whole_or_replaced(error.facts["broken_file"])
    return isinstance(error, UnsendableRecord)


class WaitingTopics:
    """Record the waiting topics of one flow and their errors, also in the table `control`.

    No record is lost: their positions stay, and the first check without the cause sends their records.
    """

    def __init__(self, control: Control, flow: str, *, now: Callable[[], datetime]) -> None:
        self._control = control
        self._flow = flow
        self._now = now
        self._topics: dict[str, MirrorlakeError] = {}
        self._limits: dict[str, str | None] = {}
        self._next_check = 0.0

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def first(self) -> MirrorlakeError | None:
        return next(iter(self._topics.values()), None)

    @property
    def put_off(self) -> dict[str, float]:
        """When each topic that a quota puts off may be made, in seconds of `time.monotonic`."""
        return {name: error.facts["allowed_at"] for name, error in self._topics.items() if "allowed_at" in error.facts}

    def begin_check(self) -> bool:
        """Return whether waiting topics must be checked now; if so, schedule the next check."""
        is_due = bool(self._topics) and time.monotonic() >= self._next_check
        if is_due:
            self._next_check = time.monotonic() + timing().waiting_topics_interval_s
        return is_due

    def error_of_topic(self, topic: str) -> MirrorlakeError:
        return self._topics[topic]

    def limit(self, topic: str) -> str | None:
        return self._limits.get(topic)

    def add(self, refused: Mapping[str, MirrorlakeError], *, limit: str | None = None) -> None:
        """Let topics wait, and log each once. `limit` is the size limit of their remote topic, if a record was too large."""
        self._next_check = time.monotonic() + timing().waiting_topics_interval_s
        self._limits |= dict.fromkeys(refused, limit)
        for topic, error in refused.items():
            if topic not in self._topics:
                log.warning(
                    "republish.topic_held flow=%s topic=%s why=%s next=%s", self._flow, topic, error.cause, error.remedy
                )
        self._topics |= refused
        self.publish()

    def release(self, topic: str) -> None:
        if self._topics.pop(topic, None) is not None:
            log.warning("republish.topic_goes_on flow=%s topic=%s", self._flow, topic)
        self.publish()

    def publish(self) -> None:
        """Write the waiting topics to the table `control` if they changed."""
        try:
            known = {
                name: one for name, one in self._control.state().parked.items() if name in of_topics(self._flow, [name])
            }
            for topic, error in self._topics.items():
                parked = self._parked(topic, error)
                if not parked.is_same(known.pop(parked.stream, None)):
                    self._control.append(PARK, Subject(kind=STREAM, name=parked.stream), value=parked.said())
            for name in known:
                self._control.append(CLEAR, Subject(kind=STREAM, name=name), value=None)
        except Exception as error:
            # The log names the topics; the next change or check writes the table again.
            log.warning("republish.held_not_recorded flow=%s why=%s", self._flow, root_cause(str(error)))

    def _parked(self, topic: str, error: MirrorlakeError) -> Parked:
        return Parked(
            stream=topic_stream(self._flow, topic),
            since=self._now(),
            error=type(error).__name__,
            cause=error.cause,
            remedy=error.remedy,
            exit_code=error.exit_code,
            # Only edited settings help against these.
            is_retried=not isinstance(error, TopicNameError | UnsendableRecord),
        )
