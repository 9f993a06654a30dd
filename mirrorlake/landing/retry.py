"""Decide what follows a failed start or turn of landing: a new start if that can help, else an error with the next command."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from mirrorlake.errors import ClusterUnreachable, LanderReplaced, LoginRefused, MirrorlakeError, StoreError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.landing.query import is_location_in_use
from mirrorlake.model.causes import root_cause

log = logging.getLogger(__name__)

# Twenty attempts with waits of up to 10 s outlast the restart of a whole cluster.
MAX_ATTEMPTS = 20
_MAX_RESTARTS = 3
# Parts of Spark's errors that the next start resolves: it finds the loss or the new topic, and handles it.
_RESOLVED_BY_RESTART = (
    "KAFKA_DATA_LOSS",
    "data loss",
    "OffsetOutOfRange",
    "LogTruncation",
    "must specify all TopicPartitions",
)
_UNREACHABLE = ("Timeout", "DisconnectException", "NetworkException", "KafkaException", "NotLeaderOrFollower")


# Errors of Java's client, by the layer of the connection that fails.
_LAYERS_BY_JAVA_ERROR: Mapping[str, str] = {
    "SaslAuthenticationException": "SASL",
    "UnsupportedSaslMechanismException": "SASL",
    "LoginException": "SASL",
    "SslAuthenticationException": "TLS",
    "SSLHandshakeException": "TLS",
}


class SourceChanged(Exception):
    """A topic was created again, or its log may be truncated: nothing was written, and landing must start again."""


def retry_or_raise(
    source: ClusterAdmin,
    error: Exception,
    failure: BaseException | None,
    attempts: int,
    *,
    once: bool,
    stop: threading.Event,
) -> None:
    """Wait before a new start if one can help, else raise mirrorlake's own error.

    `failure` is what the batch itself raised: Spark passes on its text only. `attempts` is how many starts have failed in a row.
    """
    alias, text = source.alias, str(error)
    if isinstance(error, SourceChanged | MirrorlakeError):
        # Raised by a task; a query's batch passes its error through `failure`.
        failure = error
    if is_location_in_use(text):
        raise LanderReplaced(
            f"another lander of {alias} uses the same checkpoint location",
            consequence="this lander stopped and wrote nothing more",
            remedy=f"run only one lander for {alias}; `mirrorlake status` shows its progress",
            alias=alias,
        ) from error
    failure = failure or java_client_error(alias, text)
    if isinstance(failure, SourceChanged) or any(sign in text for sign in _RESOLVED_BY_RESTART):
        if attempts <= _MAX_RESTARTS:
            log.warning("land.restart source=%s why=%s", alias, next(iter(text.splitlines()), "it has changed")[:200])
            return
    elif isinstance(failure, LoginRefused):
        # Only the next lander reads its secret again.
        raise failure from error
    elif isinstance(failure, MirrorlakeError) and not isinstance(failure, ClusterUnreachable):
        raise failure from error
    elif isinstance(failure, ClusterUnreachable) or any(sign in text for sign in _UNREACHABLE):
        if once:
            # Raises the exact error of the cluster, unless it answers again.
            source.broker_count()
        if attempts <= MAX_ATTEMPTS:
            log.warning("land.source_away source=%s attempt=%s", alias, attempts)
            stop.wait(backoff_s(attempts))
            return
        if failure is not None:
            raise failure from error
    raise StoreError(
        f"landing {alias} failed: {root_cause(text)}",
        consequence="the last batch may not have been landed; the next start continues after the relay's last records",
        remedy=f"mirrorlake doctor, then mirrorlake land --source {alias} again",
        alias=alias,
    ) from error


def should_wait_for_source(error: ClusterUnreachable, attempts: int, *, once: bool) -> bool:
    """Return whether a lander should wait for an unreachable source after so many failures in a row.

    A source that was reached before may come back; one that never was is a mistake to report at once. A lander does not read
    its secret again, so after a refused login the next one must start.
    """
    return not once and 0 < attempts <= MAX_ATTEMPTS and not isinstance(error, LoginRefused)


def java_client_error(alias: str, text: str) -> ClusterUnreachable | None:
    r"""Return the error for the layer at which Java's client inside Spark fails to reach a source, or None if its text names none."""
    layer = next((layer for sign, layer in _LAYERS_BY_JAVA_ERROR.items() if sign in text), None)
    if layer is None:
        return None
    kind = LoginRefused if layer == "SASL" else ClusterUnreachable
    return kind(
        f"cluster {alias}: {layer} fails while Java's client, inside Spark, reads it: {root_cause(text)}",
        consequence="the last batch was not landed; the next start continues after the relay's last records",
        remedy=f"check the {'sasl' if layer == 'SASL' else 'ssl'}.* settings under clusters.{alias}.client; `mirrorlake doctor` "
        "tries them with librdkafka",
        alias=alias,
        layer=layer,
    )


def backoff_s(attempts: int, *, max_s: float = 10.0) -> float:
    """Return how long to wait before the next start: 1 s, then twice as long each time, at most `max_s`."""
    return float(min(0.5 * 2 ** min(attempts, 20), max_s))
