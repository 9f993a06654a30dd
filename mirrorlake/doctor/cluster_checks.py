"""Checks of each cluster: that it answers, is the same as before, and has capable brokers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, some, warning
from mirrorlake.doctor.registry import check
from mirrorlake.errors import MirrorlakeError
from mirrorlake.kafka import librdkafka_options
from mirrorlake.lake import CLUSTER_PROPERTY
from mirrorlake.landing import refuse_other_cluster
from mirrorlake.render import plural

_NO_ID = {"", "AAAAAAAAAAAAAAAAAAAAAA"}
_HANDSHAKE_S = 5.0
_SOON_DAYS = 21


@check("kafka.reachable", layer="cluster", fix="start it, or correct bootstrap_servers and client of the cluster")
def _reachable(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Each cluster of a flow answers as it is configured: address, encryption and login."""
    for alias in inputs.clusters:
        if inputs.is_lake(alias):
            yield fine(alias, "a lake cluster: applications publish into its relay")
            continue
        try:
            yield fine(alias, plural(inputs.brokers(alias), "broker"))
        except MirrorlakeError as error:
            yield failure(alias, error.cause, error.remedy)


@check(
    "kafka.addresses",
    layer="cluster",
    per="cluster",
    finds="warning",
    fix="correct bootstrap_servers, or start that broker",
)
def _addresses(inputs: CheckContext, alias: str) -> Iterator[CheckOutcome]:
    """Every address of `bootstrap_servers` listens: a client begins at any of them, and the last one left is the outage."""
    problems = inputs.probed().get(alias, {})
    for address, problem in problems.items():
        if problem:
            fix = f"correct bootstrap_servers of {alias}, or start that broker: clients begin at any of its addresses"
            yield warning(alias, f"{address} {problem}", fix)
    yield fine(alias, f"{sum(not one for one in problems.values())} of {len(problems)} addresses listen")


@check(
    "kafka.same-cluster",
    layer="cluster",
    per="cluster",
    fix="mend bootstrap_servers; a new cluster wants an alias of its own",
)
def _same_cluster(inputs: CheckContext, alias: str) -> Iterator[CheckOutcome]:
    """The cluster that answers is the one whose records the lake holds: offsets of two clusters must never mix."""
    found = inputs.admin(alias).cluster_id()
    known = None
    # Another check reports a lake that does not answer.
    with suppress(Exception):
        known = inputs.relay_properties(alias).get(CLUSTER_PROPERTY)
    try:
        refuse_other_cluster(alias, known, found)
    except MirrorlakeError as error:
        yield failure(alias, error.cause, error.remedy)
        return
    yield fine(alias, f"id {found}")


@check(
    "kafka.topic-ids",
    layer="cluster",
    per="cluster",
    finds="warning",
    fix="brokers of Kafka 2.8 or later",
)
def _topic_ids(inputs: CheckContext, alias: str) -> Iterator[CheckOutcome]:
    """The brokers tell topic ids (Kafka 2.8): without them a topic that was deleted and created again looks like the old one."""
    names = [name for name in inputs.admin(alias).topic_names() if not name.startswith("__")][:1]
    states = inputs.admin(alias).describe(names)
    if any(state.topic_id in _NO_ID for state in states.values()):
        yield warning(
            alias,
            "its brokers tell no topic ids: a topic created again is taken for the old one",
            "raise its brokers to Kafka 2.8 or later, and never create a mirrored topic again under its name",
        )
    else:
        yield fine(alias, "topics have ids" if states else "no topic yet")


@check(
    "kafka.certificate",
    layer="cluster",
    per="cluster",
    fix="renew the brokers' certificates, or correct ssl.ca.location",
)
def _certificate(inputs: CheckContext, alias: str) -> Iterator[CheckOutcome]:
    """The brokers' certificates are valid for their addresses, and for 21 days more: an expired one cuts every client at once."""
    options = librdkafka_options(inputs.config.cluster(alias), role="admin")
    if "SSL" not in str(options.get("security.protocol", "")).upper():
        yield fine(alias, "connections have no TLS")
        return
    for address in [one for one, problem in inputs.probed().get(alias, {}).items() if not problem]:
        try:
            ends = _valid_until(address, options)
        except ssl.SSLCertVerificationError as error:
            yield failure(
                alias, f"{address}: {error.verify_message}", f"renew it, or correct ssl.ca.location of {alias}"
            )
        except (OSError, ValueError) as error:
            # The client's own certificate, a cipher or a version: kafka.reachable reports these.
            yield fine(alias, f"{address}: its certificate was not shown ({type(error).__name__})")
        else:
            days = (ends - inputs.now).days
            said = f"the certificate of {address} is valid until {ends:%Y-%m-%d}"
            if days < _SOON_DAYS:
                yield warning(
                    alias, f"{said}: {plural(max(days, 0), 'day')} more", f"renew the certificates of {alias}"
                )
            else:
                yield fine(alias, said)


def _valid_until(address: str, options: Mapping[str, Any]) -> datetime:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(
        cafile=_file(options, "ssl.ca.location"), cadata=str(options.get("ssl.ca.pem", "")) or None
    )
    context.check_hostname = options.get("ssl.endpoint.identification.algorithm", "https") != "none"
    if own := _file(options, "ssl.certificate.location"):
        context.load_cert_chain(
            own, _file(options, "ssl.key.location"), str(options.get("ssl.key.password", "")) or None
        )
    with (
        socket.create_connection((host.strip("[]"), int(port)), timeout=_HANDSHAKE_S) as plain,
        context.wrap_socket(plain, server_hostname=host.strip("[]")) as secured,
    ):
        told: Any = secured.getpeercert() or {}
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(told["notAfter"])), timezone.utc)


def _file(options: Mapping[str, Any], name: str) -> str | None:
    found = str(options.get(name, ""))
    return None if found in ("", "probe") else found


@check("kafka.internal-topics", layer="cluster", fix="kafka-reassign-partitions gives the topic more replicas")
def _internal_topics(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Targets of several brokers keep transactions and group offsets on more than one, and have brokers enough to make them.

    With transaction.state.log.replication.factor above the number of brokers no transaction ever begins.
    """
    for alias in inputs.config.targets:
        if not inputs.answers(alias) or inputs.is_lake(alias):
            continue
        brokers, layout = inputs.brokers(alias), inputs.admin(alias).topic_metadata.layout()
        wanted = int(inputs.broker_configs(alias).get("transaction.state.log.replication.factor") or 0)
        if "__transaction_state" not in layout and wanted > brokers:
            yield failure(
                alias,
                f"transaction.state.log.replication.factor is {wanted}, and {plural(brokers, 'broker')} answer: no transaction begins",
                f"start the other brokers of {alias}, or lower the setting on its brokers",
            )
        thin = [
            name
            for name in ("__transaction_state", "__consumer_offsets")
            if brokers > 1 and any(len(one.replicas) == 1 for one in layout.get(name, ()))
        ]
        if thin:
            fix = "kafka-reassign-partitions gives them three replicas"
            yield warning(alias, f"one replica each, of {brokers} brokers: {some(thin)}", fix)
        else:
            yield fine(alias, plural(brokers, "broker"))
