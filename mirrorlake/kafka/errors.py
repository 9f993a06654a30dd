"""Translate librdkafka's errors into mirrorlake's own; no package above `kafka` sees a KafkaException."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata
from tenacity import (
    Retrying,
    retry_if_exception,
    retry_if_result,
    stop_after_delay,
    wait_fixed,
    wait_random_exponential,
)

from mirrorlake.errors import ClusterError, ClusterUnreachable, LoginRefused, NotAuthorized
from mirrorlake.kafka.connection_diagnosis import ClientErrorListener, diagnose_connection
from mirrorlake.kafka.reach import advertised_error, probe, require_listening
from mirrorlake.model.patterns import shape_of
from mirrorlake.timing import timing

T = TypeVar("T")

# librdkafka writes its log to standard error unless it is given a logger.
client_log = logging.getLogger("mirrorlake.kafka.client")
# Without a handler Python would print it if nothing configures logging, as in a notebook.
client_log.addHandler(logging.NullHandler())

_UNREACHABLE = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001  confluent_kafka names librdkafka's local errors this way
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
    # The broker that was asked has left the metadata, as the only one does that is shut down.
    KafkaError._DESTROY_BROKER,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "TOPIC",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "GROUP",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "CLUSTER",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TRANSACTIONAL_ID",
}
_FLAGS = {"TOPIC": "--topic", "GROUP": "--group", "TRANSACTIONAL_ID": "--transactional-id"}
# A group coordinator's answers while it moves or loads, or while its topic is created: transient for some seconds.
COORDINATOR_MOVING = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)
# A broker that just started, or was just elected, is named as leader before it leads. What is known of the leader's epoch
# may differ for as long, on either side (KIP-320); a new leader knows its high watermark once followers fetch (KIP-207).
LEADER_STARTING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
_LOGIN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}  # noqa: SLF001
# A refused login shows within a second.
_FIRST_CALL_TIMEOUT_S = 2.0
_IN_DOUBT = "the step did not finish; whether the cluster carried it out is not known"


@dataclass(frozen=True, slots=True)
class Need:
    """The ACL that a call needs: an operation on a resource, by a LITERAL or PREFIXED pattern."""

    operation: str
    resource: str
    name: str
    pattern: str = "LITERAL"

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource.lower().replace('_', ' ')} {self.name}"

    def command(self, *, servers: str, principal: str) -> str:
        """Return the `kafka-acls.sh` command that grants it, quoted for a shell.

        >>> Need("DESCRIBE", "CLUSTER", "").command(servers="east:9092", principal="User:ml")
        'kafka-acls.sh --bootstrap-server east:9092 --add --allow-principal User:ml --operation Describe --cluster'
        """
        words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add", "--allow-principal", principal]
        words += ["--operation", "".join(part.title() for part in self.operation.split("_"))]
        words += [_FLAGS[self.resource], self.name] if self.resource in _FLAGS else ["--cluster"]
        if self.pattern == "PREFIXED":
            words += ["--resource-pattern-type", "prefixed"]
        return shlex.join(words)


# A reader of our own commits nothing, but librdkafka asks for the coordinator of its group.
_OWN_GROUPS = Need("DESCRIBE", "GROUP", "mirrorlake", "PREFIXED")


def need_of_selection(resource: str, expression: str) -> tuple[Need, str]:
    """Return the ACL that shows the topics or groups of an expression, and a name to ask for.

    >>> str(need_of_selection("TOPIC", "clicks.*")[0]), str(need_of_selection("GROUP", "[ab]x")[0])
    ('DESCRIBE on topic clicks', 'DESCRIBE on group *')
    """
    shape = shape_of(expression)
    beginning = "".join(cell or "" for cell in takewhile(lambda cell: cell is not None, shape.cells))
    if shape.meant or not beginning:
        return Need("DESCRIBE", resource, shape.meant or "*"), shape.meant or "mirrorlake"
    return Need("DESCRIBE", resource, beginning, "PREFIXED"), f"{beginning[:200]}mirrorlake"


@dataclass(slots=True, kw_only=True)
class ClientErrors:
    """Build the errors of one cluster's clients.

    `principal` is this process's principal on the cluster, as far as the settings tell. With `probes`, each call before the
    first success begins with a TCP connection, which fails within two seconds instead of a client's fifteen. Later a client
    knows brokers that the settings do not name.
    """

    alias: str
    servers: str = "<bootstrap servers>"
    principal: str = "User:<mirrorlake's principal>"
    probes: bool = False
    has_worked: bool = False
    listener: ClientErrorListener = field(default_factory=ClientErrorListener)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    poll: Callable[[], object] = field(default=lambda: None, repr=False)

    @classmethod
    def from_options(cls, alias: str, options: Mapping[str, Any], *, probes: bool = False) -> ClientErrors:
        user = options.get("sasl.username")
        servers = str(options.get("bootstrap.servers", "<bootstrap servers>"))
        errors = cls(alias=alias, servers=servers, probes=probes, options=options)
        if user:
            errors.principal = f"User:{user}"
        return errors

    def with_error_callback(self) -> dict[str, Any]:
        return {**self.options, "error_cb": self.listener}

    def call_with_early_failure(self, call: Callable[[float], T], timeout_s: float) -> T:
        """Make a call that takes a time-out; fail earlier if the client reports that the connection is refused."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                return call(left if self.has_worked else min(left, _FIRST_CALL_TIMEOUT_S))
            except KafkaException as error:
                with suppress(Exception):
                    self.poll()
                is_over = self.has_worked or deadline - time.monotonic() <= _FIRST_CALL_TIMEOUT_S / 2
                if is_over or self.listener.is_final or error.args[0].code() not in _UNREACHABLE:
                    raise

    def _layer_error(self, doing: str) -> ClusterError | None:
        with suppress(Exception):
            # librdkafka reports errors only when polled.
            self.poll()
        if not self.options or (self.has_worked and "security.protocol" not in self.options):
            # A client that worked in plain text does not need TLS.
            return None
        fault = diagnose_connection(self.alias, self.options, self.listener, has_worked=self.has_worked)
        if fault is None:
            return None
        kind = LoginRefused if fault.layer.startswith("SASL") else ClusterUnreachable
        return kind(
            f"cluster {self.alias}: {fault.layer} fails at {self.servers} while librdkafka tries to {doing}: {fault.problem}",
            # The request may have gone out over an open connection.
            consequence=_IN_DOUBT if self.has_worked else "nothing was changed by this step",
            remedy=f"{fault.remedy}; then `mirrorlake doctor`",
            alias=self.alias,
            layer=fault.layer,
        )

    def _advertised_error(self) -> ClusterUnreachable | None:
        if not self.options or all(probe({self.alias: self.servers})[self.alias].values()):
            return None
        with suppress(KafkaException):
            # The client may only know addresses that it cannot reach; a new one asks those of the settings.
            found = AdminClient(dict(self.options), logger=client_log).list_topics(timeout=_FIRST_CALL_TIMEOUT_S)
            return advertised_error(self.alias, self.servers, found.brokers.values())
        return None

    def require_advertised(self, found: ClusterMetadata) -> None:
        """Check, as long as no call has worked, that one broker is reached by the address that it calls itself."""
        error = advertised_error(self.alias, self.servers, found.brokers.values()) if self.probes else None
        if error is not None and error.facts["addresses"] == len(found.brokers):
            raise error

    def to_cluster_error(self, problem: KafkaError, doing: str, *needs: Need) -> ClusterError:
        """Return the most specific error; of the ACLs in `needs`, it names the one of the refused kind."""
        code, alias = problem.code(), self.alias
        if code in _UNREACHABLE | {KafkaError._SSL} and (own := self._layer_error(doing) or self._advertised_error()):  # noqa: SLF001
            return own
        if code in _UNREACHABLE:
            # The TCP probe succeeded: a proxy, a load balancer, or TLS in place of plain text.
            heard = (
                "; its addresses accept connections, but no broker answers there as configured" if self.probes else ""
            )
            return ClusterUnreachable(
                f"cluster {alias} does not answer while trying to {doing} ({problem.str()}){heard}",
                consequence=_IN_DOUBT,
                remedy=f"check bootstrap_servers and security of clusters.{alias}, then run `mirrorlake doctor`",
                alias=alias,
            )
        if code in _LOGIN:
            return LoginRefused(
                f"cluster {alias}: SASL fails at {self.servers} while librdkafka tries to {doing}: {problem.str()}",
                consequence="nothing was changed by this step",
                remedy=f"check the sasl.* settings under clusters.{alias}.client",
                alias=alias,
                layer="SASL",
            )
        if kind := _FORBIDDEN.get(code):
            if need := next((need for need in (*needs, _OWN_GROUPS) if need.resource == kind), None):
                return self.forbidden_error(doing, need)
            return NotAuthorized(
                f"cluster {alias} does not allow {self.principal} to {doing} ({problem.name()})",
                consequence="nothing was changed by this step",
                remedy=f"grant the missing {kind.lower().replace('_', ' ')} permission with kafka-acls.sh on {alias}",
                alias=alias,
            )
        if code == KafkaError.THROTTLING_QUOTA_EXCEEDED:
            return self.throttled_error(doing, 1.0)
        return ClusterError(
            f"cluster {alias} could not {doing}: {problem.str()} ({problem.name()})",
            consequence="the step did not finish",
            remedy="run `mirrorlake doctor` to see which layer fails",
            alias=alias,
        )

    def throttled_error(self, doing: str, wait_s: float) -> ClusterError:
        return ClusterError(
            f"the quota controller_mutation_rate of cluster {self.alias} lets {self.principal} {doing} in {wait_s:.0f} s",
            consequence="nothing was changed by this step",
            remedy="wait and try again, as a running mirror does; or raise the quota with kafka-configs.sh",
            alias=self.alias,
            allowed_at=time.monotonic() + wait_s,
        )

    def forbidden_error(self, doing: str, need: Need) -> NotAuthorized:
        return NotAuthorized(
            f"cluster {self.alias} does not allow {self.principal} to {doing}: {need} is missing",
            consequence="nothing was changed by this step",
            remedy=need.command(servers=self.servers, principal=self.principal),
            alias=self.alias,
            operation=need.operation,
            resource=need.resource,
            name=need.name,
            principal=self.principal,
        )

    @contextmanager
    def creating_client(self) -> Iterator[None]:
        """Translate the error of a client that refuses its settings, such as a key store with a wrong password."""
        try:
            yield
        except KafkaException as error:
            problem = error.args[0]
            reason = problem.str() if isinstance(problem, KafkaError) else str(problem)
            raise ClusterError(
                f"the client of cluster {self.alias} refuses its settings: {reason}",
                consequence="nothing was read or sent",
                remedy=f"mend clusters.{self.alias}.client: the files that it names, and their passwords",
                alias=self.alias,
            ) from error

    @contextmanager
    def translating(self, doing: str, *needs: Need) -> Iterator[None]:
        """Translate every KafkaException of the block.

        Raises:
            ClusterUnreachable: a client that `probes` finds no listener.
        """
        if self.probes:
            require_listening(self.alias, self.servers)
        try:
            yield
            self.probes = False
            self.has_worked = True
            self.listener.reset()
        except KafkaException as error:
            problem = error.args[0]
            if not isinstance(problem, KafkaError):
                raise ClusterError(f"cluster {self.alias} could not {doing}: {problem}", alias=self.alias) from error
            raise self.to_cluster_error(problem, doing, *needs) from error


def retry_transient(transient: Collection[int], *, timeout_s: float | None = None) -> Retrying:
    """Return the attempts of a call that is retried after errors with these codes; the last one is raised."""
    return Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, KafkaException) and error.args[0].code() in transient),
        stop=stop_after_delay(timeout_s or timing().retry_timeout_s),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        reraise=True,
    )


def wait_until(condition: Callable[[], bool], *, timeout_s: float, interval_s: float) -> bool:
    """Check a condition until it holds or the time is over, and return whether it holds."""
    checks = Retrying(
        retry=retry_if_result(lambda holds: not holds),
        stop=stop_after_delay(timeout_s),
        wait=wait_fixed(interval_s),
        retry_error_callback=lambda _: False,
    )
    return bool(checks(condition))
