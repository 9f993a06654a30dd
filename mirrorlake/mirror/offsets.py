"""The offset map of one flow: the counterpart of an offset, a table of offsets, or the positions of a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrorlake import replay
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.model.offset_map import Translation
from mirrorlake.offsets import translate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorlake.offsets import MovedPositions


class Offsets:
    """The offset map of one flow: `mirror["east->central"].offsets`."""

    def __init__(self, context: Context, flow: str) -> None:
        self._context = context
        self._name = flow

    def __repr__(self) -> str:
        return f"Offsets({self._name})"

    @property
    def _flow(self) -> FlowConfig:
        return replay.find_flow(self._context, self._name)

    def translate(self, topic: str, partition: int, offset: int, *, generation: int | None = None) -> Translation:
        """Return the target offset of the record at an upstream offset, or the reason why it has none.

        Example:
            >>> mirror["east->central"].offsets.translate("orders", 0, 1139)  # doctest: +SKIP
        """
        return translate.translate_offset(
            self._context.lake,
            self._flow,
            topic=topic,
            partition=partition,
            offset=offset,
            generation=generation,
        )

    def translate_back(self, topic: str, partition: int, offset: int) -> Translation:
        """Return the upstream record at a downstream offset of a remote topic, which may be named as on the source."""
        flow = self._flow
        remote = flow.remote_topic(topic) if flow.selection.matches(topic) else topic
        return translate.translate_back(self._context.lake, flow, topic=remote, partition=partition, offset=offset)

    def translate_table(self, offsets: DataFrame, *, reverse: bool = False) -> DataFrame:
        """Add the counterpart to each row of a table of offsets, or why it has none; set-based, for any number of rows.

        Args:
            offsets: columns `topic`, `partition`, `offset`, and `generation` where it is known; others pass through.
            reverse: from downstream offsets of remote topics to upstream ones.

        Returns:
            The rows with `status` and, forwards, `target_topic`, `target_partition`, `downstream_offset` and `position`
            (the reader's next offset, law A); backwards `source_topic`, `generation`, `source_partition`, `upstream_offset`.

        Raises:
            UsageError: a column is missing.

        Example:
            >>> asked = spark.createDataFrame(  # doctest: +SKIP
            ...     [("orders", 0, 1139)], "topic string, partition int, offset bigint")
            >>> mirror["east->central"].offsets.translate_table(asked).show()  # doctest: +SKIP
        """
        return translate.translate_table(self._context.lake, self._flow, offsets, reverse=reverse)

    def move_positions(self, document: Any) -> MovedPositions:
        """Translate the positions of a reader that stores them outside of Kafka to the target (law A).

        Args:
            document: its positions (next offset to read): `{"orders": {"0": 17}}` as Spark's `startingOffsets`, or a list of
                `{"topic": "orders", "partition": 0, "offset": 17}`; the result has the same shape.

        Raises:
            UsageError: the document has another shape, or names a topic that the flow does not carry.
        """
        from mirrorlake.offsets import external_readers

        return external_readers.move_positions(self._context, self._flow, document)

    def move_spark_query(self, checkpoint_location: str) -> MovedPositions:
        """Translate the checkpoint of a Spark query that reads the source into `startingOffsets` at the target.

        Raises:
            UsageError: the folder has no finished batch of a Kafka source.
        """
        from mirrorlake.offsets import external_readers

        return external_readers.move_spark_query(self._context, self._flow, checkpoint_location)
