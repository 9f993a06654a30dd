"""An MLflow tracking store: a sqlite file, a server, or a workspace of Databricks.

Only MLflow's client is used, never its global state: a notebook's own tracking is not disturbed.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from mirrorlake.tracking.run import KIND, LONGEST_PARAMETER, TrackedRun

_SQLITE = "sqlite:///"
# MLflow takes at most 1 000 metrics and 100 parameters in one call.
_MAX_PARAMETERS = 100


class RunStore:
    """Log runs to one experiment, which is created if it is missing; any error of MLflow, its driver or the network is raised."""

    def __init__(self, uri: str, experiment: str) -> None:
        if "mlflow" not in sys.modules:
            # mlflow reports its usage to its makers; a mirror connects only to the clusters and stores of its settings.
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        # Two log lines about new tables would interrupt a verification.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        file = _file_of(uri)
        folder = None if file is None else file.parent
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        # The registry is not used, but MLflow would use its default.
        self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._experiment = self._make(experiment, folder)

    def _make(self, name: str, folder: Path | None) -> str:
        from mlflow.exceptions import MlflowException

        # Reports are beside the sqlite file; MLflow would write them to the working directory.
        artifacts = None if folder is None else (folder / "artifacts").as_uri()
        for last in (False, True):
            found = self._client.get_experiment_by_name(name)
            if found is not None:
                return str(found.experiment_id)
            try:
                return str(self._client.create_experiment(name, artifact_location=artifacts))
            except MlflowException:
                # Another process was faster.
                if last:
                    raise
        raise AssertionError("one of the two looks returns or raises")

    def log(self, run: TrackedRun) -> str:
        from mlflow.entities import Metric, Param

        began, ended = (int(at.timestamp() * 1000) for at in (run.began_at, run.ended_at))
        tags = {KIND: run.kind, **run.tags}
        made = self._client.create_run(self._experiment, start_time=began, tags=tags, run_name=run.name)
        run_id = str(made.info.run_id)
        texts = {name: str(value)[:LONGEST_PARAMETER] for name, value in run.parameters.items()}
        parameters = [Param(name, text) for name, text in texts.items()][:_MAX_PARAMETERS]
        figures = [Metric(name, float(value), ended, 0) for name, value in run.figures.items()]
        self._client.log_batch(run_id, metrics=figures, params=parameters)
        for name, text in run.reports.items():
            self._client.log_text(run_id, text, name)
        self._client.set_terminated(run_id, status="FINISHED", end_time=ended)
        return run_id


def _file_of(uri: str) -> Path | None:
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]).absolute() if uri.startswith(_SQLITE) else None
