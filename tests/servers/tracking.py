"""MLflow's tables, made once for all tests: that takes seconds."""

from __future__ import annotations

import os
import shutil
from contextlib import chdir
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def ready_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlflow")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # Loaded when it is needed: no other test wants mlflow.
    from mlflow import MlflowClient

    # MLflow makes a folder in the working directory.
    with chdir(folder):
        MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db").search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def database(ready_database: Path, tmp_path: Path) -> Path:
    place = tmp_path / "runs" / "mlflow.db"
    place.parent.mkdir()
    shutil.copy(ready_database, place)
    return place
