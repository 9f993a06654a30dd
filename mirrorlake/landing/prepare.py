"""Land a source, from the context of its mirror."""

from __future__ import annotations

import threading

from mirrorlake.context import Context
from mirrorlake.kafka import spark_options
from mirrorlake.lake import FencedRelayWriter, StreamSign
from mirrorlake.landing.lander import Lander
from mirrorlake.landing.settings import LandListener, LandSettings
from mirrorlake.progress import ProgressCallback, log_context
from mirrorlake.timing import timing
from mirrorlake.topics import require_source


def land(
    context: Context,
    source: str,
    stop: threading.Event,
    *,
    once: bool,
    tell: ProgressCallback,
    rebuild: bool = False,
    writer: FencedRelayWriter | None = None,
) -> int:
    """Land a source until it is drained or `stop` is set, and return the number of landed records."""
    context.require_classic_session()
    require_source(context.admin(source), context.config.flows_from(source))
    context.lake.create_all([source])
    tell = StreamSign(context.lake, source).signing(tell, interval_s=sign_interval_s(context, source))
    settings = land_settings(context, source)
    lander = Lander(context.lake, context.admin(source), settings, now=context.now, tell=tell, writer=writer)
    with log_context(source=source):
        lander.run(once=once, stop=stop, rebuild=rebuild)
    return lander.records


def land_settings(context: Context, alias: str) -> LandSettings:
    config = context.config
    cluster, metrics = config.cluster(alias), context.metrics
    return LandSettings(
        alias=alias,
        subscribe_pattern=config.subscribe_pattern(alias),
        flows=config.flows_from(alias),
        never_leave=config.never_leave(alias).java_regex,
        kafka_options=spark_options(cluster),
        reader_options=context.reader_options(alias),
        on_gap=cluster.land.on_gap,
        max_records_per_batch=cluster.land.max_records_per_batch,
        max_bytes_per_batch=cluster.land.max_bytes_per_batch,
        live=cluster.land.execution == "live",
        tasks=None if cluster.land.tasks == "auto" else cluster.land.tasks,
        trigger=cluster.land.trigger,
        listener=LandListener() if metrics is None else metrics.land_listener(alias),
    )


def sign_interval_s(context: Context, alias: str) -> float:
    """Return how often landing writes its sign of life, from which heartbeats take their time."""
    flows = context.config.flows_from(alias)
    every = [flow.mm2.heartbeat_interval.total_seconds() for flow in flows if flow.mm2.heartbeats]
    return min([*every, timing().stream_sign_interval_s])
