"""Read records and offsets of a mirror."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from mirrorlake import records, topics
from mirrorlake.config import when
from mirrorlake.config.schema import ClusterConfig, NameMatcher
from mirrorlake.errors import TopicDenied
from mirrorlake.mirror.base import MirrorBase
from mirrorlake.mirror.offsets import Offsets
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.offset_map import Translation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from mirrorlake.records import (
        BrowsedRecord,
        ClusterLog,
        LandedLog,
        Page,
        Passport,
        Stop,
    )
    from mirrorlake.topics import TopicList


class RecordMethods(MirrorBase):
    """The methods of a `Mirror` that read records, and their counterparts."""

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
        """Return the exact counterpart of an offset, or why there is none (see `Offsets`).

        With `reverse`, `topic` is the remote topic (or its source topic) and `offset` a downstream offset.
        """
        offsets = Offsets(self._context, flow)
        if reverse:
            return offsets.translate_back(topic, partition, offset)
        return offsets.translate(topic, partition, offset, generation=generation)

    def browse(
        self,
        cluster: str,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        at: str | datetime | None = None,
        after: Page | None = None,
        before: Page | None = None,
        key: str | bytes | None = None,
        contains: str | bytes | None = None,
        where: str = "",
        look: int = 10_000,
        relay: bool = False,
        generation: int | None = None,
        count: int = 20,
        max_bytes: int = 2**20,
    ) -> Page:
        """Return records of a cluster, or of its relay; commits nothing (law H).

        Without an offset or time they are the newest. With `key`, `contains` or `where` they are the first matches
        among the records read. The page has the number of records read, and `after` or `before` continues from it.

        Args:
            cluster: the alias of a source or a target; for a lake cluster the relay is read.
            topic: the topic's name on that cluster.
            partition: the partition; None for all, merged by time.
            offset: first offset wanted, of one partition.
            at: or the first record at or after a time, as `"2026-11-22 03:30"` (UTC) or `"-2h"`.
            after: continue forwards from this page; with `at`, to the first record of that time.
            before: continue backwards from this page.
            key: only records with exactly this key.
            contains: only records whose value contains this text or these bytes.
            where: only records for which this condition of a rule is true: `"value.amount > 10"`, `"$.customer.id = 7"`.
            look: the maximum number of records to read.
            relay: read the relay of the cluster instead.
            generation: the generation of a topic that was created again, in the relay; None for the newest.
            count: the maximum number of records returned, 1 to 1 000.
            max_bytes: the maximum bytes of keys, values and headers; at least one record is returned.

        Raises:
            UsageError: the partition does not exist, nothing of it was landed, or time or condition cannot be parsed.
            TopicDenied: by the settings the topic never leaves the cluster, not even to a screen.
            ClusterError: the cluster does not answer.

        Example:
            >>> mirror.browse("central", "east.orders", 0, offset=1139, count=5)  # doctest: +SKIP
            >>> page = mirror.browse("east", "orders", where="$.customer.id = 7")  # doctest: +SKIP
            >>> mirror.browse("east", "orders", where="$.customer.id = 7", before=page)  # doctest: +SKIP
        """
        is_landed = self._visible(cluster, topic).is_lake or relay
        seek = records.Seek(
            partition=partition,
            offset=offset,
            at=self._time(at),
            after=None if after is None else after.nexts,
            before=None if before is None else before.starts,
            match=records.Match.of(key=key, contains=contains, where=where),
            count=count,
            max_bytes=max_bytes,
            look=look,
        )
        if is_landed:
            return records.read_page(self._landed(cluster, topic, partition, generation), seek)
        with self._log(cluster, topic, partition) as log:
            return records.read_page(log, seek)

    def tail(
        self,
        cluster: str,
        topic: str,
        partition: int | None = None,
        *,
        key: str | bytes | None = None,
        contains: str | bytes | None = None,
        where: str = "",
        relay: bool = False,
        stop: Stop | None = None,
    ) -> Iterator[BrowsedRecord]:
        """Yield records as they are produced, or landed, from now on; commits nothing (law H).

        The start is fixed when this returns: no record that is produced later is left out. With all partitions, those
        that the topic gets later are included.

        Args:
            cluster: the alias of a source or a target; for a lake cluster the relay is read.
            topic: the topic's name on that cluster.
            partition: the partition; None for all.
            key: only records with exactly this key.
            contains: only records whose value contains this text or these bytes.
            where: only records for which this condition is true (see `browse`).
            relay: read the relay of the cluster instead, which grows by batches.
            stop: ends the iteration, such as a `threading.Event`; None for never.

        Raises:
            UsageError, TopicDenied, ClusterError: as `browse`.

        Example:
            >>> for record in mirror.tail("east", "orders", key="k7"):  # doctest: +SKIP
            ...     print(record)
        """
        is_landed = self._visible(cluster, topic).is_lake or relay
        match = records.Match.of(key=key, contains=contains, where=where)
        ends = stop or threading.Event()
        if is_landed:
            again = partial(self._landed, cluster, topic, partition, None)
            return records.tail_relay(again(), again=again, match=match, stop=ends)
        return records.tail_cluster(self._log(cluster, topic, partition), match=match, stop=ends)

    def _log(self, cluster: str, topic: str, partition: int | None) -> ClusterLog:
        options = self._context.reader_options(cluster)
        return records.ClusterLog(self.admin(cluster), options, topic, partition)

    def _landed(self, cluster: str, topic: str, partition: int | None, generation: int | None) -> LandedLog:
        self._context.create_tables()
        return records.LandedLog(self.lake, cluster, topic, partition, generation=generation)

    def _time(self, at: str | datetime | None) -> datetime | None:
        return None if at is None else when(at, now=self._context.now())

    def topics(self, cluster: str, *, internal: bool = False) -> TopicList:
        """List the topics of a cluster with the flows that mirror them, or why none does.

        Args:
            cluster: the alias of a source or a target.
            internal: list those of Kafka, MirrorMaker and mirrorlake, too.

        Raises:
            UsageError: the settings have no such cluster.
            ClusterError: the cluster does not answer.

        Example:
            >>> mirror.topics("east")  # doctest: +SKIP
        """
        context = self._context
        return topics.list_topics(
            cluster,
            topics.partition_counts(context.source(cluster)),
            flows=self.config.flows,
            names_of=lambda alias: context.source(alias).topic_names(),
            internal=internal,
        )

    def _visible(self, cluster: str, topic: str) -> ClusterConfig:
        settings = self.config.cluster(cluster)
        if NameMatcher(self.config.never_leave(cluster)).matches(topic):
            raise TopicDenied(
                f"the settings say that {topic} never leaves {cluster}",
                consequence="its records are not shown either",
                remedy=f"look at it on {cluster} itself, or take it out of clusters.{cluster}.never_leave",
                topic=topic,
            )
        return settings

    def passport(
        self, cluster: str, topic: str, partition: int, offset: int, *, generation: int | None = None
    ) -> Passport:
        """Return every copy of one record, or why it has none, from its coordinates on any side (law E).

        The coordinates are those on `cluster`, a source or a target, where the topic may have another name.
        `generation` is that of a source topic that was created again; None for the newest with the offset.

        Raises:
            UsageError: the settings have no such cluster.
            TopicDenied: by the settings the topic never leaves the cluster.

        Example:
            >>> print(mirror.passport("central", "east.orders", 0, 1139))  # doctest: +SKIP
        """
        self._visible(cluster, topic)
        self._context.create_tables()
        registry = records.Registry(self._context)
        return registry.passport(cluster, TopicPartition(topic, partition), offset, generation=generation)

    def sql(self, query: str, **values: Any) -> DataFrame:
        """Return the result of a SQL query over the lake; tables have names, whatever their paths are.

        `records` are the records of all sources, with `source`, `key_text` and `value_text`; `relay_east` is the
        relay of `east`; side tables (`offset_map`, `gaps`, `positions`, …) and typed tables have their own names, with
        `_` for characters that SQL would quote. They are temporary views of the session, which hide a table of yours
        with the same name; a side table hides a typed one.

        A marker `:topic` in the query stands for the argument `topic` of `values`.

        Raises:
            UsageError: a table does not exist yet.

        Example:
            >>> mirror.sql("SELECT topic, count(*) FROM records GROUP BY topic").show()  # doctest: +SKIP
        """
        return records.run_sql(self._context, query, values)

    def query(self, query: str, **values: Any) -> pa.Table:
        """Return the answer of a SELECT as an Arrow table: by DuckDB if the lake is a folder, else by Spark.

        Names and markers are those of `sql`, and so is the dialect; `records` takes Spark.

        Raises:
            UsageError: a table does not exist yet, the text is no SELECT, or DuckDB refuses it.

        Example:
            >>> mirror.query("SELECT _source, sum(amount) AS amount FROM sales GROUP BY ALL").to_pandas()  # doctest: +SKIP
        """
        return records.run_query(self._context, query, values)
