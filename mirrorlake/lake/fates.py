"""Rows of `offset_map`: their ranges without holes, and the views `withheld` and `quarantine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.lake.spark_tables import quote
from mirrorlake.model.ranges import Ranges

# The views' names in SQL.
WITHHELD, QUARANTINE = "withheld", "quarantine"


def ranges_of(row: Any) -> Ranges:
    """Return the upstream offsets of a row of `offset_map`."""
    firsts = [row.first_upstream, *(hole["first"] + hole["length"] for hole in row.holes)]
    ends = [*(hole["first"] for hole in row.holes), row.last_upstream + 1]
    return Ranges(zip(firsts, ends, strict=True))


def dense_ranges(rows: str, columns: str) -> str:
    """Return the SQL of the ranges between the holes of rows: their columns, and the `first` and `last` offset of each.

    `rows` names rows of `offset_map`, all of whose columns but `columns` may have been renamed or left out, except
    `first_upstream`, `last_upstream`, `holes`, `lane` and `ledger_seq`; `columns` distinguish their source partitions.
    """
    return f"""
        SELECT {columns}, first, last FROM (
            SELECT {columns}, first, coalesce(lead(first - missing) OVER (
                PARTITION BY {columns}, lane, ledger_seq, first_upstream ORDER BY first), last_upstream + 1) - 1 AS last
            FROM (
                SELECT *, first_upstream AS first, CAST(0 AS BIGINT) AS missing FROM {rows}
                UNION ALL
                SELECT * EXCEPT (hole), hole.first + hole.length, hole.length
                FROM (SELECT *, explode(holes) AS hole FROM {rows})))
        WHERE first <= last
    """  # noqa: S608  names of columns


def withheld_sql(offset_map: str) -> str:
    """Return the query of `withheld`: the offsets that rules withheld, those from the first to the last without `holes`."""
    return f"""
        SELECT flow, source_topic AS topic, generation, source_partition AS partition, first_upstream AS first_offset,
            last_upstream AS last_offset, holes, record_count, kind, rule, rule_version, reason, lane, ledger_seq,
            committed_at AS withheld_at, target_topic, target_topic_id
        FROM {offset_map} WHERE kind <> 'sent'
    """  # noqa: S608  a name


def quarantine_sql(offset_map: str, relays: Mapping[str, str], sources: Mapping[str, str]) -> str:
    """Return the query of `quarantine`: the quarantined records that the relays have.

    `relays` are the names of relays by alias, `sources` the aliases of the flows' sources; one of them has a relay.
    """
    flows = " UNION ALL ".join(
        f"SELECT {quote(flow)} AS flow, {quote(alias)} AS source" for flow, alias in sources.items()
    )
    records = " UNION ALL ".join(
        f"SELECT {quote(alias)} AS source, topic, generation, partition, `offset`, timestamp, key, value, headers "  # noqa: S608
        f"FROM {relay}"
        for alias, relay in relays.items()
    )
    columns = (
        "flow, source_topic, generation, source_partition, rule, rule_version, reason, lane, ledger_seq, committed_at"
    )
    return f"""
        WITH quarantined AS (SELECT * FROM {offset_map} WHERE kind = 'quarantined'),
        offsets AS (SELECT *, explode(sequence(first, last)) AS at FROM ({dense_ranges("quarantined", columns)}))
        SELECT o.flow, r.topic, r.generation, r.partition, r.`offset`, r.timestamp, r.key, r.value, r.headers, o.rule,
            o.rule_version, o.reason, o.lane, o.ledger_seq, o.committed_at AS quarantined_at
        FROM offsets AS o JOIN ({flows}) AS f ON o.flow = f.flow
        JOIN ({records}) AS r ON r.source = f.source AND r.topic = o.source_topic AND r.generation = o.generation
            AND r.partition = o.source_partition AND r.`offset` = o.at
    """  # noqa: S608  names
