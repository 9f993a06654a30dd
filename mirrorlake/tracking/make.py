"""From the settings to a tracker, or to one that keeps nothing and can say why."""

from __future__ import annotations

import logging
from functools import partial

from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.config.schema.tracking import without_user
from mirrorlake.errors import ConfigError
from mirrorlake.tracking.store import RunStore, is_made
from mirrorlake.tracking.tracker import Tracker, lacking

log = logging.getLogger(__name__)


def default_uri(config: MirrorConfig) -> str | None:
    """Return where runs go by the settings: `tracking.uri`, else a sqlite file in the lake's folder, else None.

    Raises:
        ConfigError: a reference cannot be resolved.
    """
    folder = config.lake.folder()
    return config.tracking.tracking_uri() or (f"sqlite:///{folder}/mlflow/mlflow.db" if folder is not None else None)


def make_tracker(config: MirrorConfig) -> Tracker:
    """Return the tracker of these settings; it opens nothing before its first run."""
    settings = config.tracking
    if settings.enabled is False:
        return Tracker(None, why_off="`tracking.enabled` is false")
    try:
        uri = default_uri(config)
        why = "the lake is not a folder of this machine, and `tracking.uri` is not set" if uri is None else lacking(uri)
    except ConfigError as error:
        # A notebook that may read the lake need not know the server's address.
        uri, why = None, str(error.faults[0])
    if uri is None or why is not None:
        if settings.enabled is True:
            log.warning("tracking.off why=%s", why)
        return Tracker(None, why_off=str(why))
    return Tracker(
        partial(RunStore, uri, settings.experiment_name(uri)),
        is_made=partial(is_made, uri),
        timeout_s=settings.timeout.total_seconds(),
        shown=lambda text: without_user(text.replace(uri, without_user(uri))),
    )
