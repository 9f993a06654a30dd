"""Checks of the settings file, before any cluster is called."""

from __future__ import annotations

from collections.abc import Iterator

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, warning
from mirrorlake.doctor.registry import check
from mirrorlake.errors import ConfigError
from mirrorlake.kafka import librdkafka_options
from mirrorlake.render import plural


@check("settings.file", layer="settings", finds="ok", fix="--conf names another file")
def _file(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Which settings file is meant, how many flows it has, and where its lake is: the wrong file looks healthy, too."""
    config = inputs.config
    file = "given as values" if config.path is None else str(config.path.absolute())
    place = config.lake.location() or ".".join(config.lake.namespace() or ())
    yield fine(file, f"{plural(len(config.flows), 'flow')}, lake {place}")


@check("settings.references", layer="settings", fix="set the variable, or create the secret, that the finding names")
def _references(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """Every `${env:…}` and `${secret:…}` of clusters and tracking resolves for this user, and every PEM file is readable.

    A service has another environment than the shell in which the settings were tried.
    """
    looked = 0
    for alias in inputs.clusters:
        cluster = inputs.config.cluster(alias)
        if cluster.is_lake:
            continue
        looked += 1
        try:
            librdkafka_options(cluster, role="admin")
        except ConfigError as error:
            for fault in error.faults:
                yield failure(fault.path, fault.problem, fault.remedy)
    try:
        inputs.config.tracking.tracking_uri()
    except ConfigError as error:
        for fault in error.faults:
            yield warning(fault.path, fault.problem, fault.remedy)
    yield fine("clusters", f"looked at {plural(looked, 'cluster')}")
