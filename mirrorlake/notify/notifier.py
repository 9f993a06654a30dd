"""Send the changes of a running mirror's status to the receivers of the settings."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from mirrorlake.config import identity
from mirrorlake.context import Context
from mirrorlake.lag import Status, count_kinds
from mirrorlake.lake import GAPS
from mirrorlake.model.control import CLEAR, NOTIFIED, NOTIFY, RECEIVER, REFUSE, Subject
from mirrorlake.notify.delivery import Delivery
from mirrorlake.notify.facts import FlowFact, read_facts
from mirrorlake.notify.receiver import Receiver, stop_all
from mirrorlake.notify.templates import Notice

log = logging.getLogger(__name__)


class Notifier:
    """The receivers of one mirror.

    The process that republishes a flow notifies of it: by law F there is one, so that no message is sent twice.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        state = context.control().state()
        self._receivers = [
            Receiver(
                one,
                sent={flow: states for (receiver, flow), states in state.notified.items() if receiver == one.title},
                record=self._recorder(one.title),
                make=self._notice,
                delivery=Delivery(
                    one.title, is_failing=one.title in state.failing_receivers, record=partial(self._record, one.title)
                ),
            )
            for one in context.config.notify
        ]
        self._mirror, self._host = mirror_id(context), socket.gethostname()

    def start(self) -> None:
        """Start the receivers' threads."""
        for receiver in self._receivers:
            receiver.start()

    def stop(self) -> None:
        """End the receivers' threads."""
        stop_all(self._receivers)

    def observe(self, status: Status) -> Status:
        """Take a status that was read for something else, and return it; never raises."""
        try:
            counts = count_kinds(self._context.lake)
            for flow in self._context.config.flows:
                if flow.name in status:
                    facts = read_facts(flow, status[flow.name], counts)
                    for receiver in self._receivers:
                        receiver.offer(flow.name, facts)
        except Exception:
            log.exception("notify.failed what=read the status; the mirror goes on")
        return status

    def _notice(self, kind: str, flow: str, was: str, fact: FlowFact, changes: int) -> Notice:
        at = self._context.now()
        return Notice(
            kind=kind, flow=flow, was=was, fact=fact, at=at, changes=changes, mirror=self._mirror, host=self._host
        )

    def _recorder(self, receiver: str) -> Callable[[str, Mapping[str, str]], None]:
        control = self._context.control()

        def record(flow: str, states: Mapping[str, str]) -> None:
            control.append(NOTIFY, Subject(kind=NOTIFIED, name=receiver, flow=flow), value=dict(states))

        return record

    def _record(self, receiver: str, why: str) -> None:
        subject = Subject(kind=RECEIVER, name=receiver)
        self._context.control().append(REFUSE if why else CLEAR, subject, reason=why)


def mirror_id(context: Context, *, starts_spark: bool = True) -> str:
    """Return the id of this mirror in messages: that of its lake, or a hash of the address where there is no lake yet.

    Without `starts_spark` also of a lake that only Spark reaches.
    """
    lake = context.lake
    if (starts_spark or not lake.is_spark_only) and lake.exists(gaps := lake.meta_location(GAPS)):
        return identity(lake.table_id(gaps))[:8]
    address = context.config.lake
    return identity(address.location() or list(address.namespace() or ()))[:8]


@contextmanager
def notifying(context: Context) -> Iterator[Callable[[Status], Status]]:
    """Give a function that takes each status of a running mirror; it does nothing where no receiver is set."""
    if not context.config.notify:
        yield lambda status: status
        return
    try:
        notifier = Notifier(context)
        notifier.start()
    except Exception:
        log.exception("notify.failed what=start; the mirror runs without notifications")
        yield lambda status: status
        return
    try:
        yield notifier.observe
    finally:
        notifier.stop()
