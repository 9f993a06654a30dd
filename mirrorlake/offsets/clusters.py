"""The clusters of a mirror, as questions about offsets and groups reach them."""

from __future__ import annotations

from typing import Protocol

from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.kafka import ClusterAdmin, Groups
from mirrorlake.kafka.lane import LedgerReader
from mirrorlake.topics import TopicSource


class Clusters(Protocol):
    """Clients of every cluster of the settings; each is opened when it is first asked for."""

    @property
    def config(self) -> MirrorConfig:
        """The settings of this moment."""

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a Kafka cluster."""

    def source(self, alias: str) -> TopicSource:
        """Return the topics of a source, a Kafka or a lake cluster."""

    def groups(self, alias: str) -> Groups:
        """Return the consumer groups of a Kafka cluster."""

    def ledger(self, flow: FlowConfig) -> LedgerReader:
        """Return a reader of a flow's ledger; the caller closes it."""
