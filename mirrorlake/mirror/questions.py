"""The part of the facade that answers questions about records: where they stand, what they say."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

from mirrorlake.config.values import length_of
from mirrorlake.mirror.base import Part
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.offset_map import Translation
from mirrorlake.offsets import translate as offsets_step
from mirrorlake.offsets.external_readers import MovedPositions, move_positions, spark_positions
from mirrorlake.records.conflicts import key_conflicts
from mirrorlake.records.record import Beside, Page, Passport
from mirrorlake.records.side_by_side import Anchor, read_beside
from mirrorlake.records.sql import json_view, run_sql


class Asking(Part):
    """What answers questions about records."""

    def translate(
        self,
        flow: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        generation: int | None = None,
        reverse: bool = False,
    ) -> Translation:
        """Return the exact counterpart of an offset, or why there is none.

        With `reverse`, `topic` is the remote topic (its source's name is understood too) and `offset` a downstream one.
        """
        settings = self.config.flow(flow)
        if not reverse:
            return offsets_step.translate_offset(
                self.lake, settings, topic=topic, partition=partition, offset=offset, generation=generation
            )
        remote = settings.remote_topic(topic) if settings.selection.matches(topic) else topic
        return offsets_step.translate_back(self.lake, settings, topic=remote, partition=partition, offset=offset)

    def translate_table(self, flow: str, offsets: DataFrame, *, reverse: bool = False) -> DataFrame:
        """Return a table of offsets with the counterpart of each, or why it has none (see `Offsets.translate_table`)."""
        return offsets_step.translate_table(self.lake, self.config.flow(flow), offsets, reverse=reverse)

    def move_positions(self, flow: str, document: Any) -> MovedPositions:
        """Return where a reader that keeps its offsets outside of Kafka goes on (see `Offsets.move_positions`)."""
        settings = self.config.flow(flow)
        return move_positions(self.lake, settings, document, self._wiring)

    def move_spark_query(self, flow: str, checkpoint_location: str) -> MovedPositions:
        """Return the `startingOffsets` of a Spark query at the target (see `Offsets.move_spark_query`)."""
        return self.move_positions(flow, spark_positions(self.lake, checkpoint_location))

    def browse(
        self,
        cluster: str,
        topic: str,
        partition: int = 0,
        *,
        offset: int | None = None,
        at: datetime | None = None,
        relay: bool = False,
        generation: int | None = None,
        count: int = 20,
        max_bytes: int = 2**20,
    ) -> Page:
        """Return records of one partition as they stand on a cluster, or as they were landed from it; commits nothing (law H).

        Args:
            cluster: the alias of a source or a target; of a lake cluster the relay is read.
            topic: the topic, as it is called there.
            partition: the partition.
            offset: first offset wanted; the newest records without it and without `at`.
            at: or the first record at or after a time, which knows its zone.
            relay: read the relay of the cluster instead.
            generation: the life of a topic that was created again, in the relay; None for the newest.
            count: the most records, 1 to 1 000.
            max_bytes: the most bytes of keys, values and headers; one record is always given.

        Raises:
            UsageError: there is no such partition, or nothing of it was landed.
            TopicDenied: the settings say that the topic never leaves the cluster, not to a screen either.
            ClusterError: the cluster does not answer.

        Example:
            >>> mirror.browse("central", "east.orders", 0, offset=1139, count=5)  # doctest: +SKIP
        """
        return self._wiring.browse(
            cluster,
            TopicPartition(topic, partition),
            relay=relay,
            generation=generation,
            offset=offset,
            at=at,
            count=count,
            max_bytes=max_bytes,
        )

    def beside(
        self,
        flow: str,
        topic: str,
        partition: int = 0,
        *,
        anchor: Anchor = "source",
        offset: int | None = None,
        at: datetime | None = None,
        count: int = 20,
    ) -> Beside:
        """Return the same records on source, relay and target of a flow; a side that cannot be read is noted.

        Args:
            flow: the flow's name.
            topic: the source topic.
            partition: the partition on the anchor's side.
            anchor: source, relay or target: the side that `offset` or `at` is meant on.
            offset: first offset wanted there; the newest records without it and without `at`.
            at: or the first record at or after a time.
            count: the most records of each side, 1 to 1 000.

        Raises:
            UsageError, TopicDenied, ClusterError: as `browse`, of the anchor's side.
        """
        where = TopicPartition(topic, partition)
        seek: dict[str, Any] = {"anchor": anchor, "offset": offset, "at": at, "count": count}
        return read_beside(self.lake, self.config.flow(flow), where, browse=self.browse, **seek)

    def passport(
        self, cluster: str, topic: str, partition: int, offset: int, *, generation: int | None = None
    ) -> Passport:
        """Return where one record stands everywhere, or why it does not, from its coordinates on any side (law E).

        Args:
            cluster: the alias of the cluster on which the coordinates hold: a source, or a target.
            topic: the topic, as it is called there.
            partition: the partition there.
            offset: the offset there.
            generation: the life of a source topic that was created again; None for the newest that holds the offset.

        Raises:
            UsageError: there is no such cluster.
            TopicDenied: the settings say that the topic never leaves the cluster.

        Example:
            >>> print(mirror.passport("central", "east.orders", 0, 1139))  # doctest: +SKIP
        """
        return self._wiring.passport(cluster, TopicPartition(topic, partition), offset, generation=generation)

    def conflicts(self, topic: str, *, within: str | timedelta = "5 minutes") -> DataFrame:
        """Return the records with one key that two regions wrote within a time, in pairs.

        Args:
            topic: the topic, as it is called on the sources where its records were produced.
            within: the most time between the timestamps of two records.

        Raises:
            UsageError: fewer than two sources of the settings carry the topic, or `within` is not a time.

        Example:
            >>> mirror.conflicts("orders", within="5 minutes").show()  # doctest: +SKIP
        """
        return key_conflicts(self.lake, self.config.flows, topic, within=length_of(within))

    def sql(self, query: str, **values: Any) -> DataFrame:
        """Return the answer to a SQL query over the lake; tables have names, whatever their paths are.

        `records` are the records of all sources, with `source`, `key_text` and `value_text`; `relay_east` is the relay of
        `east`; side tables (`offset_map`, `gaps`, `positions`, …) have their own names. They are temporary views of the
        session, which hide a table of yours with the same name.

        Args:
            query: the query; `:topic` in it stands for the argument `topic`.
            **values: what such markers stand for.

        Raises:
            UsageError: a table does not exist yet.

        Example:
            >>> mirror.sql("SELECT topic, count(*) FROM records GROUP BY topic").show()  # doctest: +SKIP
        """
        return run_sql(self.lake, self.config.sources, query, values)

    def json_view(
        self, topic: str, *, name: str | None = None, schema: str | None = None, newest: int = 10_000
    ) -> DataFrame:
        """Make a view of a source topic with the members of its JSON values, and return it: `value.amount`.

        Columns: `source`, `topic`, `generation`, `partition`, `offset`, `timestamp`, `timestamp_type`, `landed_at`, `key`
        (text), `value` (null for tombstones and what is not a JSON object) and `value_text`. It shows what is in the relays when it
        is asked, under the same name in SQL cells and in `sql`, as long as the session lives.

        Args:
            topic: the source topic.
            name: of the view; the topic's with `_` for what SQL would have quoted.
            schema: the type of the values, as `STRUCT<amount: DOUBLE>`; else that of the newest records.
            newest: how many records decide about the type.

        Raises:
            UsageError: no record of the topic holds a JSON object, and no schema is given.

        Example:
            >>> mirror.json_view("sales").select("value.customer").show()  # doctest: +SKIP
        """
        return json_view(self.lake, self.config.sources, topic, name=name, schema=schema, newest=newest)
