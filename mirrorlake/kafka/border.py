"""The border where librdkafka's errors become mirrorlake's own; nothing above this floor sees a KafkaException."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from mirrorlake.errors import ClusterError, ClusterUnreachable, NotAuthorized

# librdkafka's own words; it writes them to standard error unless it is given a logger.
client_log = logging.getLogger("mirrorlake.kafka.client")

_UNREACHABLE = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001  confluent_kafka names librdkafka's local errors this way
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}
_LOGIN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}  # noqa: SLF001


def kafka_error(problem: KafkaError, *, alias: str, doing: str) -> ClusterError:
    """Return the most specific own error for what a cluster answered while `doing` something."""
    code = problem.code()
    if code in _UNREACHABLE:
        return ClusterUnreachable(
            f"cluster {alias} does not answer while trying to {doing} ({problem.str()})",
            consequence="nothing was changed by this step",
            remedy=f"check bootstrap_servers and security of clusters.{alias}, then run `mirrorlake doctor`",
            alias=alias,
        )
    if code in _LOGIN:
        return NotAuthorized(
            f"cluster {alias} refused the login while trying to {doing} ({problem.str()})",
            consequence="nothing was changed by this step",
            remedy=f"check the sasl.* settings under clusters.{alias}.client",
            alias=alias,
        )
    if code in _FORBIDDEN:
        return NotAuthorized(
            f"cluster {alias} does not allow this principal to {doing} ({problem.str()})",
            consequence="nothing was changed by this step",
            remedy=f"grant the missing {_FORBIDDEN[code]} permission with kafka-acls on {alias}",
            alias=alias,
        )
    return ClusterError(
        f"cluster {alias} could not {doing}: {problem.str()} ({problem.name()})",
        consequence="nothing was changed by this step",
        remedy="run `mirrorlake doctor` to see which layer fails",
        alias=alias,
    )


@contextmanager
def kafka_errors(*, alias: str, doing: str) -> Iterator[None]:
    """Translate every KafkaException of the block into a `ClusterError` that names the cluster and the deed."""
    try:
        yield
    except KafkaException as error:
        problem = error.args[0]
        if not isinstance(problem, KafkaError):
            raise ClusterError(f"cluster {alias} could not {doing}: {problem}", alias=alias) from error
        raise kafka_error(problem, alias=alias, doing=doing) from error
