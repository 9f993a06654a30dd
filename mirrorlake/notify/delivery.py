"""Whether a receiver takes messages: in the log, and in the table `control` where an operator finds it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mirrorlake.errors import MirrorlakeError

log = logging.getLogger(__name__)

# With the pauses between attempts some 15 s: a receiver that restarts is no event.
_RECORDED_ATTEMPTS = 5


class Delivery:
    """The result of the newest messages to one receiver; a change is recorded once.

    Args:
        receiver: its name.
        is_failing: whether the newest record says that it does not take messages.
        record: writes down why it does not take messages, or "" when it takes them again.
    """

    def __init__(self, receiver: str, *, is_failing: bool, record: Callable[[str], None]) -> None:
        self._receiver = receiver
        self._is_failing = is_failing
        self._record = record
        self.failed_attempts = 0

    def refused(self, flow: str, kind: str, why: str) -> None:
        """Note that a message was refused, and is left out."""
        self.failed_attempts = 0
        log.warning(
            "notify.refused receiver=%s flow=%s kind=%s why=%s next=this message is left out; mirrorlake doctor --notify tests it",
            self._receiver,
            flow,
            kind,
            why,
        )
        self._record_change(f"a message of {flow} ({kind}) was left out: {why}")

    def not_sent(self, why: str) -> None:
        """Note that an attempt failed; the same message is tried again."""
        if not self.failed_attempts:
            log.warning(
                "notify.not_sent receiver=%s why=%s next=it is tried again; mirrorlake doctor --notify tests it",
                self._receiver,
                why,
            )
        self.failed_attempts += 1
        if self.failed_attempts >= _RECORDED_ATTEMPTS:
            self._record_change(f"messages wait: {why}")

    def sent(self) -> None:
        """Note that a message was taken."""
        if self.failed_attempts:
            log.warning("notify.sent_again receiver=%s attempts=%s", self._receiver, self.failed_attempts + 1)
        self.failed_attempts = 0
        self._record_change("")

    def _record_change(self, why: str) -> None:
        if bool(why) == self._is_failing:
            return
        try:
            self._record(why)
        except MirrorlakeError as error:
            # Tried again with the next message.
            log.info("notify.not_recorded receiver=%s why=%s", self._receiver, error.cause)
        else:
            self._is_failing = bool(why)
