"""The SQL views `lag`, `latency` and `rpo`: in a catalog the text of `lag/sql.py`, of a folder or store what is asked with it.

Spark's tasks ask those as a person does, a piece of the time each. As one query of 30 days Spark sorted all positions several
times, and took minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lag.sql import NO_LATER, with_bucket
from mirrorlake.lag.sql_hops import HOPS, WAITED
from mirrorlake.lag.sql_texts import LAG, LATENCY, RPO, WAITED_COUNTED, WAITED_SINCE
from mirrorlake.lag.view_intervals import LATENCY_BUCKET_S, VIEWS, frame_by_interval
from mirrorlake.lake import OFFSET_MAP, POSITIONS, SAMPLES, WITHHELD, Lake, TableSchema, quote


def create_views(lake: Lake, flows: Sequence[FlowConfig], *, days: int = 7) -> list[str]:
    """Create or replace the views and return their names.

    On a catalog they stay in its schema. On a path they are temporary and belong to the session: Delta has no place for a
    view in a folder.

    Each query reads `days` of the tables, whatever it asks for.
    """
    created = []
    if not lake.is_catalog and all(lake.relay_log(flow.source) for flow in flows):
        for name, view in VIEWS.items():
            frame = frame_by_interval(lake, flows, name, days=days)
            frame.where(_shown(view.column, days)).createOrReplaceTempView(name)
            created.append(name)
        return created
    for name, body in _bodies(lake, flows, days=days).items():
        kind, place = ("VIEW", lake.view_name(name)) if lake.is_catalog else ("TEMPORARY VIEW", name)
        lake.spark.sql(
            f"CREATE OR REPLACE {kind} {place} AS SELECT * FROM ({body}) WHERE {_shown(VIEWS[name].column, days)}"  # noqa: S608
        )
        created.append(place)
    return created


def _shown(column: str, days: int) -> str:
    return f"{column} >= current_timestamp() - INTERVAL '{days}' DAY"


def _bodies(lake: Lake, flows: Sequence[FlowConfig], *, days: int) -> dict[str, str]:
    tables = _tables(lake, flows, days=days)
    # Only lag needs the whole offset map, because a group may have read nothing for long.
    recent = tables | {"offset_map": _newer(lake, OFFSET_MAP, "committed_at", days=days)}
    return {
        "lag": _with_hops(LAG, WAITED_SINCE).format(**tables),
        "latency": with_bucket(LATENCY, LATENCY_BUCKET_S).format(**recent),
        "rpo": _with_hops(RPO, WAITED_COUNTED).format(**tables),
    }


def _with_hops(text: str, waited: str) -> str:
    return text.replace("{hops}", HOPS).replace("{waited}", waited)


def _tables(lake: Lake, flows: Sequence[FlowConfig], *, days: int) -> dict[str, str]:
    # A day more, which has the first complete sample of the shown time.
    positions = _newer(lake, POSITIONS, "observed_at", days=days + 1)
    return {
        "bounds": WAITED,
        "later": NO_LATER.format(positions=positions),
        "since": f"unix_micros(current_timestamp() - INTERVAL '{days}' DAY)",
        "positions": positions,
        "samples": _newer(lake, SAMPLES, "observed_at", days=days + 1),
        "offset_map": lake.sql_name(lake.meta_location(OFFSET_MAP)),
        "withheld": lake.sql_name(lake.meta_location(WITHHELD)),
        "relays": _relays(lake, sorted({flow.source for flow in flows})),
        "flows": _flows(flows),
    }


def _newer(lake: Lake, table: TableSchema, column: str, *, days: int) -> str:
    name = lake.sql_name(lake.meta_location(table))
    return f"(SELECT * FROM {name} WHERE {column} >= current_timestamp() - INTERVAL '{days}' DAY)"  # noqa: S608


def _relays(lake: Lake, aliases: Iterable[str]) -> str:
    parts = (
        f"SELECT {quote(alias)} AS source, topic, generation, partition, offset, timestamp "  # noqa: S608
        f"FROM {lake.sql_name(lake.relay_location(alias))}"
        for alias in aliases
    )
    return f"({' UNION ALL '.join(parts)})"


def _flows(flows: Iterable[FlowConfig]) -> str:
    rows = ", ".join(f"({quote(flow.name)}, {quote(flow.source)}, {quote(flow.target)})" for flow in flows)
    return f"(SELECT * FROM VALUES {rows} AS f(flow, source, target))"  # noqa: S608
