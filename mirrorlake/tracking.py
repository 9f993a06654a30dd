"""Log verifications and drills as runs of MLflow; no other file uses mlflow, and nothing depends on it.

It lies below `status`, because verify and drills log their runs and import nothing beside or above them.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mirrorlake.config import redact
from mirrorlake.config.schema import MirrorConfig, without_user
from mirrorlake.errors import ConfigError
from mirrorlake.render import JsonDisplayable, html_page, json_file

log = logging.getLogger(__name__)

_SQLITE = "sqlite:///"
# At most: find and create the experiment, create the run, its figures, two reports (two requests each), end.
_REQUESTS = 9
_environment = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """One run: `parameters` are inputs and no secrets, `figures` are results, `report` becomes a page and a JSON document.

    A figure's name ends with its unit if it has one: `seconds`, `records_per_second`; counts are records.
    """

    kind: str
    flow: str
    result: str
    began_at: datetime
    ended_at: datetime
    parameters: Mapping[str, str | int]
    figures: Mapping[str, float]
    report: JsonDisplayable


def log_run(config: MirrorConfig, run: TrackedRun) -> str | None:
    """Log a run and return its id, or None if runs are not logged or it failed.

    A failure is one line in the log; a server that is silent or away costs at most `tracking.timeout`.
    """
    settings, folder, uri = config.tracking, config.lake.folder(), ""
    if settings.enabled is False:
        return None
    try:
        uri = settings.tracking_uri() or (f"{_SQLITE}{folder}/mlflow/mlflow.db" if folder is not None else "")
        if not uri:
            return None
        with _bounded(settings.timeout.total_seconds()):
            return _write(uri, settings.experiment_name(uri), run)
    except Exception as error:
        # A notebook that may read the lake need not know the server's address, or have mlflow.
        if settings.enabled is True or not isinstance(error, ConfigError | ModuleNotFoundError):
            log.warning("tracking.not_logged run='%s %s' why=%s", run.kind, run.flow, _why(error, uri))
    return None


def _why(error: Exception, uri: str) -> str:
    """Return an error as one line, without the secrets that the store's address may hold."""
    if isinstance(error, ConfigError):
        return str(error.faults[0])
    parts, line = urlsplit(uri), next(iter(str(error).strip().splitlines()), "")
    line = redact(line, [parts.password or "", unquote(parts.password or ""), parts.query])
    remedy = "; next: pip install 'mirrorlake[mlflow]'" if isinstance(error, ModuleNotFoundError) else ""
    return f"{type(error).__name__}: {without_user(line)[:300]}{remedy}"


@contextmanager
def _bounded(timeout_s: float) -> Iterator[None]:
    """Bound the requests of MLflow, which reads these variables at each of them; it would try for minutes."""
    request_s = str(math.ceil(timeout_s / _REQUESTS))
    bounds = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": request_s,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_DATABRICKS_ENDPOINT_HTTP_RETRY_TIMEOUT": request_s,
        "PGCONNECT_TIMEOUT": request_s,
        # With --json, standard output holds one document.
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }
    with _environment:
        before = {name: os.environ[name] for name in bounds if name in os.environ}
        os.environ.update(bounds)
        try:
            yield
        finally:
            # A notebook's own runs have other bounds.
            for name in bounds:
                del os.environ[name]
            os.environ.update(before)


def _write(uri: str, experiment: str, run: TrackedRun) -> str:
    if "mlflow" not in sys.modules:
        # mlflow reports its usage to its makers; a mirror connects only to the clusters and stores of its settings.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    artifacts = None if uri.startswith(("http", "databricks")) else _prepare_database(uri)
    # The client alone, with the registry at the same address: a notebook's own tracking is not disturbed.
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    known = client.get_experiment_by_name(experiment)
    place = known.experiment_id if known else client.create_experiment(experiment, artifact_location=artifacts)
    began, ended = (int(at.timestamp() * 1000) for at in (run.began_at, run.ended_at))
    tags = {"mirrorlake.kind": run.kind, "mirrorlake.flow": run.flow}
    name = f"{run.kind} {run.flow}"
    run_id = str(client.create_run(place, start_time=began, tags=tags, run_name=name).info.run_id)
    parameters = [Param(name, str(value)) for name, value in run.parameters.items()]
    figures = [Metric(name, float(value), ended, 0) for name, value in run.figures.items()]
    client.log_batch(run_id, metrics=figures, params=parameters)
    document = {**run.report.as_dict(), "parameters": dict(run.parameters), "figures": dict(run.figures)}
    client.log_text(run_id, json_file(document), f"{run.kind}.json")
    client.log_text(run_id, html_page(f"{name}: {run.result}", run.report), f"{run.kind}.html")
    client.set_terminated(run_id, status="FINISHED", end_time=ended)
    return run_id


def _prepare_database(uri: str) -> str | None:
    """Fail soon where the database is away or locked, which MLflow tries for minutes; return where a file's reports go."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    # Two lines about new tables would interrupt a verification.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    engine = create_engine(uri, poolclass=NullPool)
    if not uri.startswith(_SQLITE):
        engine.connect().close()
        return None
    folder = Path(uri.removeprefix(_SQLITE).partition("?")[0]).absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    # MLflow would write them into the working directory.
    return (folder / "artifacts").as_uri()
