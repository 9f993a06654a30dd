"""MLflow's tables, made once for all tests: that takes seconds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def ready_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, made once: that takes seconds."""
    folder = tmp_path_factory.mktemp("mlflow")
    # Loaded when it is needed: no other test wants mlflow.
    from mirrorlake.tracking.store import RunStore

    before = Path.cwd()
    os.chdir(folder)
    try:
        RunStore(f"sqlite:///{folder}/made/mlflow.db", "unused")
        assert [path.name for path in folder.iterdir()] == ["made"], "nothing is written into the working directory"
    finally:
        os.chdir(before)
    return folder / "made" / "mlflow.db"


@pytest.fixture
def database(ready_database: Path, tmp_path: Path) -> Path:
    place = tmp_path / "runs" / "mlflow.db"
    place.parent.mkdir()
    shutil.copy(ready_database, place)
    return place
