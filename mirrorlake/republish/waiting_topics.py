"""Topics of a flow that something on the target stands in the way of: they wait, and the flow's other topics go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import Control
from mirrorlake.model.causes import root_cause
from mirrorlake.model.control import CLEAR, PARK, STREAM, Subject
from mirrorlake.model.parked import Parked, of_topics, topic_stream

log = logging.getLogger(__name__)


class ConflictingTopics:
    """Keep the topics of one flow that wait, by source topic, and say so in the table `control`.

    Nothing of them is lost: their positions stay, and the first look that finds the way free sends what came meanwhile.
    """

    def __init__(self, control: Control, flow: str, *, now: Callable[[], datetime]) -> None:
        self._control = control
        self._flow = flow
        self._now = now
        self._topics: dict[str, MirrorlakeError] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def first(self) -> MirrorlakeError | None:
        """Why the first of them waits."""
        return next(iter(self._topics.values()), None)

    def hold(self, refused: Mapping[str, MirrorlakeError]) -> None:
        """Let topics wait; those that do are logged once."""
        for topic, error in refused.items():
            if topic not in self._topics:
                log.warning(
                    "republish.topic_held flow=%s topic=%s why=%s next=%s", self._flow, topic, error.cause, error.remedy
                )
        self._topics |= refused
        self.publish()

    def release(self, topic: str) -> None:
        """Let a topic go on."""
        if self._topics.pop(topic, None) is not None:
            log.warning("republish.topic_goes_on flow=%s topic=%s", self._flow, topic)
        self.publish()

    def publish(self) -> None:
        """Say in the table `control` which topics wait, where it says something else."""
        try:
            known = {
                name: one for name, one in self._control.state().parked.items() if name in of_topics(self._flow, [name])
            }
            for topic, error in self._topics.items():
                said = self._parked(topic, error)
                if not said.is_same(known.pop(said.stream, None)):
                    self._control.append(PARK, Subject(kind=STREAM, name=said.stream), value=said.said())
            for name in known:
                self._control.append(CLEAR, Subject(kind=STREAM, name=name), value=None)
        except Exception as error:
            # The log has it; the next look tries again.
            log.warning("republish.held_not_recorded flow=%s why=%s", self._flow, root_cause(str(error)))

    def _parked(self, topic: str, error: MirrorlakeError) -> Parked:
        return Parked(
            stream=topic_stream(self._flow, topic),
            since=self._now(),
            error=type(error).__name__,
            cause=error.cause,
            remedy=error.remedy,
            exit_code=error.exit_code,
            is_retried=True,
        )
