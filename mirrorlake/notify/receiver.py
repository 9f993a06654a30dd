"""One receiver: the states it got last, the facts that wait for it, and the thread that sends them.

Only the newest facts of a flow wait: a receiver that is away costs no memory, and gets the present state when it is back.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from mirrorlake.config import redact, typed_values
from mirrorlake.config.schema import ReceiverConfig
from mirrorlake.errors import ConfigError, MirrorlakeError
from mirrorlake.landing import backoff_s
from mirrorlake.notify.delivery import Delivery
from mirrorlake.notify.facts import INITIAL_STATES, Facts, FlowFact, is_news
from mirrorlake.notify.templates import Notice, write_json, write_pagerduty, write_slack

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_MAX_PAUSE_S = 300.0
# The end of a run does not wait for a receiver that hangs.
_GRACE_S = 2.0


class _NoRedirect(HTTPRedirectHandler):
    """Refuse redirects: the message would go to an address that no settings name."""

    def redirect_request(self, *_: Any) -> None:
        return None


# Codes of 4xx that tell of the receiver or its key, and not of this message.
_OF_RECEIVER = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


class RefusedMessage(str):
    """Why a receiver refused a message that it will not take later either."""

    __slots__ = ()


def send(config: ReceiverConfig, notice: Notice) -> str:
    """Send a message; return why the receiver did not take it, "" if it did. The answer never shows its address.

    It is a `RefusedMessage` where another attempt with this message is in vain.
    """
    hidden: list[str] = []
    try:
        url, key = config.address(), config.key()
        hidden = [url, key, *typed_values()]
        bodies = {"json": write_json, "slack": write_slack}
        body = write_pagerduty(notice, key) if config.template == "pagerduty" else bodies[config.template](notice)
        headers = {"Content-Type": "application/json", "User-Agent": "mirrorlake"}
        request = Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310  `address` allows HTTP only
        with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S):
            return ""
    except ConfigError as error:
        return "; ".join(f"{fault.path}: {fault.problem}" for fault in error.faults)
    except HTTPError as error:
        error.close()
        # Words of our own: the server's may quote the address.
        phrase = next((one.phrase for one in HTTPStatus if one == error.code), "")
        said = f"it answers {error.code} {phrase}".rstrip()
        return RefusedMessage(said) if 400 <= error.code < 500 and error.code not in _OF_RECEIVER else said
    except OSError as error:
        return redact(f"{type(error).__name__}: {getattr(error, 'reason', error)}", hidden)
    except Exception as error:
        # Texts of other errors quote parts of the address.
        return f"it cannot be called ({type(error).__name__})"


def try_receiver(config: ReceiverConfig, *, at: datetime, mirror: str, host: str) -> str:
    """Send a test message, and PagerDuty the end of the test; return why it was not taken, "" if it was."""
    began = FlowFact(state="test", severity="warning", text="mirrorlake doctor sends a test; nothing is wrong")
    notice = Notice(kind="test", flow="test", was="", fact=began, at=at, mirror=mirror, host=host)
    problem = send(config, notice)
    if problem or config.template != "pagerduty":
        return problem
    ended = FlowFact(state="ended", severity="ok", text="the test has ended")
    return send(config, Notice(kind="test", flow="test", was="test", fact=ended, at=at, mirror=mirror, host=host))


@dataclass(slots=True)
class _KindState:
    """One kind of fact of one flow.

    `sent_state` is the state that the receiver got last, None before the first. `unsent_changes` counts the changes of state since.
    The next message is sent no earlier than `next_send_s`, by the monotonic clock.
    """

    sent_state: str | None
    newest_fact: FlowFact | None = None
    unsent_changes: int = 0
    next_send_s: float = 0.0


@dataclass(slots=True)
class _FlowState:
    kinds: dict[str, _KindState] = field(default_factory=dict)
    is_recorded: bool = True


class Receiver:
    """Send the changes of flows to one receiver, on a thread of its own; a receiver that is away is tried again.

    Args:
        config: its settings.
        sent: the states that it got before, by flow and kind.
        record: writes down the states of a flow after a message.
        make: makes a notice of kind, flow, state before, fact and count of changes.
        delivery: logs and records whether it takes messages.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        *,
        sent: Mapping[str, Mapping[str, str]],
        record: Callable[[str, Mapping[str, str]], None],
        make: Callable[[str, str, str, FlowFact, int], Notice],
        delivery: Delivery,
    ) -> None:
        self._config = config
        self._delivery = delivery
        self._record = record
        self._make = make
        self._flows = {
            flow: _FlowState({kind: _KindState(state) for kind, state in states.items()})
            for flow, states in sent.items()
        }
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"notify {config.title}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a message under way gets 2 s."""
        stop_all([self])

    def end(self) -> None:
        """Tell the thread to end; returns at once."""
        self._ended.set()
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, or no longer than a time."""
        self._thread.join(max(0.0, timeout_s))

    def offer(self, flow: str, facts: Facts) -> None:
        """Take the newest facts of a flow; returns at once."""
        if self._config.flows and flow not in self._config.flows:
            return
        with self._lock:
            state = self._flows.setdefault(flow, _FlowState(is_recorded=False))
            for kind in self._config.on:
                if kind in facts:
                    self._update(state, kind, facts[kind])
        self._wake.set()

    def _update(self, flow: _FlowState, kind: str, fact: FlowFact) -> None:
        one = flow.kinds.setdefault(kind, _KindState(INITIAL_STATES.get(kind)))
        before = one.sent_state if one.newest_fact is None else one.newest_fact.state
        one.newest_fact = fact
        if is_news(kind, before, fact.state):
            one.unsent_changes += 1
        elif one.sent_state is None or (kind not in INITIAL_STATES and int(fact.state) < int(one.sent_state)):
            # A count that is read first, or fell, is what later ones are compared with.
            one.sent_state, flow.is_recorded = fact.state, False

    def _work(self) -> None:
        wait_s: float | None = None
        while not self._ended.is_set():
            self._wake.wait(wait_s)
            self._wake.clear()
            try:
                wait_s = self._turn()
            except Exception:
                log.exception("notify.failed receiver=%s", self._config.title)
                wait_s = _MAX_PAUSE_S

    def _turn(self) -> float | None:
        """Send what is due; return the seconds until something else may be, None where nothing waits."""
        waits: list[float] = []
        for name, flow in list(self._flows.items()):
            for kind, one in list(flow.kinds.items()):
                if not one.unsent_changes or self._ended.is_set():
                    continue
                if (left := one.next_send_s - time.monotonic()) > 0:
                    waits.append(left)
                    continue
                before = one.sent_state
                if not self._send(name, kind, one):
                    # The receiver is away for all flows.
                    return self._pause()
                if one.sent_state != before:
                    flow.is_recorded = False
                self._write(name, flow)
            self._write(name, flow)
        return min(waits, default=None)

    def _send(self, flow: str, kind: str, one: _KindState) -> bool:
        """Send the newest fact, or leave it out if it is refused; return whether the receiver answered."""
        with self._lock:
            fact, changes = one.newest_fact, one.unsent_changes
        if fact is None:
            return True
        problem = send(self._config, self._make(kind, flow, one.sent_state or "", fact, changes))
        is_refused = isinstance(problem, RefusedMessage)
        if is_refused:
            self._delivery.refused(flow, kind, problem)
        elif problem:
            self._delivery.not_sent(problem)
            return False
        else:
            self._delivery.sent()
        with self._lock:
            one.unsent_changes -= changes
            if not is_refused:
                one.sent_state = fact.state
            one.next_send_s = time.monotonic() + self._config.min_interval.total_seconds()
        return True

    def _pause(self) -> float:
        """Wait before the next attempt; newer facts do not shorten it."""
        self._ended.wait(backoff_s(self._delivery.failed_attempts, max_s=_MAX_PAUSE_S))
        return 0.0

    def _write(self, name: str, flow: _FlowState) -> None:
        """Record the states that were sent; a failure is tried again with the next message."""
        with self._lock:
            if flow.is_recorded:
                return
            flow.is_recorded = True
            states = {kind: one.sent_state for kind, one in flow.kinds.items() if one.sent_state is not None}
        try:
            self._record(name, states)
        except MirrorlakeError as error:
            flow.is_recorded = False
            log.info("notify.not_recorded receiver=%s why=%s", self._config.title, error.cause)


def stop_all(receivers: Sequence[Receiver]) -> None:
    """End the threads of receivers; messages under way get 2 s together."""
    for receiver in receivers:
        receiver.end()
    until = time.monotonic() + _GRACE_S
    for receiver in receivers:
        receiver.join(until - time.monotonic())
