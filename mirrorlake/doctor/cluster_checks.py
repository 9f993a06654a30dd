"""Checks of each cluster: that it answers, is the same as before, and has capable brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, some, warning
from mirrorlake.doctor.registry import check
from mirrorlake.errors import MirrorlakeError
from mirrorlake.lake import CLUSTER_PROPERTY
from mirrorlake.landing import refuse_other_cluster
from mirrorlake.render import plural

_NO_ID = {"", "AAAAAAAAAAAAAAAAAAAAAA"}


@check("kafka.reachable", layer="cluster", fix="start it, or correct bootstrap_servers and client of the cluster")
def _reachable(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Each cluster of a flow answers as it is configured, address, encryption and login, and its brokers where they advertise it."""
    for alias in inputs.clusters:
        if inputs.is_lake(alias):
            yield fine(alias, "a lake cluster: applications publish into its relay")
            continue
        try:
            if error := inputs.admin(alias).advertised_error():
                raise error
            yield fine(alias, plural(inputs.brokers(alias), "broker"))
        except MirrorlakeError as error:
            yield failure(alias, error.cause, error.remedy)


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
