"""An MLflow tracking store: a sqlite file, a server, or a workspace of Databricks.

Only MLflow's client is used, never its global state: a notebook's own tracking is not disturbed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirrorlake.tracking.run import FLOW, KIND, LONGEST_PARAMETER, TrackedRun

_SQLITE = "sqlite:///"
# MLflow takes at most 1 000 metrics and 100 parameters in one call.
_MAX_PARAMETERS = 100


class RunStore:
    """Log runs to one experiment, which is created if it is missing.

    Raises:
        Exception: any error of MLflow, its driver or the network.
    """

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
        """Log a run and return its id."""
        from mlflow.entities import Metric, Param

        began, ended = (int(at.timestamp() * 1000) for at in (run.began_at, run.ended_at))
        made = self._client.create_run(self._experiment, start_time=began, tags=run.all_tags(), run_name=run.name)
        run_id = str(made.info.run_id)
        texts = {name: str(value)[:LONGEST_PARAMETER] for name, value in run.parameters.items()}
        parameters = [Param(name, text) for name, text in texts.items()][:_MAX_PARAMETERS]
        figures = [Metric(name, float(value), ended, 0) for name, value in run.figures.items()]
        self._client.log_batch(run_id, metrics=figures, params=parameters)
        for name, text in run.reports.items():
            self._client.log_text(run_id, text, name)
        self._client.set_terminated(run_id, status="FINISHED", end_time=ended)
        return run_id

    def runs(self, *, kind: str | None, flow: str | None, newest: int) -> list[dict[str, Any]]:
        """Return runs, newest first, each as one row: identity and times, then figures and parameters by name."""
        wanted = {KIND: kind, FLOW: flow}
        terms = [f"tags.`{tag}` = '{_quoted(value)}'" for tag, value in wanted.items() if value is not None]
        terms.append(f"tags.`{KIND}` != ''")
        found = self._client.search_runs(
            [self._experiment],
            filter_string=" AND ".join(terms),
            max_results=newest,
            order_by=["attributes.start_time DESC"],
        )
        return [_row(run.info, run.data) for run in found]


def _row(info: Any, data: Any) -> dict[str, Any]:
    tags: Mapping[str, str] = data.tags
    return {
        "run_id": info.run_id,
        "kind": tags.get(KIND),
        "flow": tags.get(FLOW),
        "name": info.run_name,
        "began_at_ms": info.start_time,
        "ended_at_ms": info.end_time,
        "status": info.status,
        **dict(sorted(data.metrics.items())),
        **{f"param.{name}": value for name, value in sorted(data.params.items())},
    }


def is_made(uri: str) -> bool:
    """Return whether the store exists; a server always does."""
    file = _file_of(uri)
    return file is None or file.exists()


def _file_of(uri: str) -> Path | None:
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]).absolute() if uri.startswith(_SQLITE) else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
