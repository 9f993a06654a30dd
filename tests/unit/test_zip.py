"""The package in a zip, as `spark-submit --py-files` gives it to executors: in their working directory, by a relative path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import mirrorlake

ROOT = Path(mirrorlake.__file__).parents[1]
# What a worker's tasks are made of.
_USED = """
import sys
sys.path.insert(0, "./mirrorlake.zip")
from mirrorlake.lake import LandingLog
from mirrorlake.republish import Republisher
print(LandingLog.__module__, sys.modules["mirrorlake"].__file__)
"""


def test_the_package_is_imported_out_of_a_zip(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "mirrorlake.zip", "w") as archive:
        for file in (ROOT / "mirrorlake").rglob("*.py*"):
            if file.suffix in (".py", ".pyi"):
                archive.write(file, file.relative_to(ROOT))
    done = subprocess.run([sys.executable, "-c", _USED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["mirrorlake.lake.landing_log", "./mirrorlake.zip/mirrorlake/__init__.py"], (
        done.stderr
    )
