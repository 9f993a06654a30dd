import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import mirrorlake
from mirrorlake.daemon import LOADED_BY_WORKERS, prefer_package

_FAULTS = """
import resource
from mirrorlake.daemon import keep_freed_memory
keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    several = [b"x" * (1 << 20) for _ in range(100)]
    del several
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


def test_the_zip_of_an_installed_pyspark_is_left_out_and_that_of_another_spark_stays() -> None:
    zip_of_package = "/venv/site-packages/pyspark/python/lib/pyspark.zip"
    path = ["", zip_of_package, "/venv/site-packages/pyspark/python/lib/py4j-0.10.9.9-src.zip", "/venv/site-packages"]
    assert prefer_package(path) == ["", path[2], path[3]]
    path = ["/opt/spark/python/lib/pyspark.zip", "/venv/site-packages"]
    assert prefer_package(path) == path


def test_memory_that_was_freed_is_used_again() -> None:
    """Each fault has the kernel clear a page of 4 KB; 100 MB are 25 600."""
    said = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True)
    assert int(said.stdout) < 2_000


def test_what_workers_load_is_loaded_before_they_are_forked_and_says_nothing_to_spark(tmp_path: Path) -> None:
    """Spark reads a port of four bytes from the daemon's standard output; what cannot be imported is the task's to report."""
    (tmp_path / "loud.py").write_text("print('loaded')")
    path = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    environment = os.environ | {LOADED_BY_WORKERS: "loud,nowhere.at_all", "PYTHONPATH": path}
    command = [sys.executable, "-m", "mirrorlake.daemon", "pyspark.worker"]
    # The end of its standard input ends it.
    done = subprocess.run(command, input=b"", capture_output=True, env=environment, check=False)
    assert (len(done.stdout), done.stderr) == (4, b"loaded\n")


# What a worker's tasks are made of.
_USED = """
import sys
sys.path.insert(0, "./mirrorlake.zip")
from mirrorlake.lake import LandingLog
from mirrorlake.republish import Republisher
print(LandingLog.__module__, sys.modules["mirrorlake"].__file__)
"""


def test_the_package_is_imported_out_of_a_zip(tmp_path: Path) -> None:
    """As `spark-submit --py-files` gives it to executors: in their working directory, by a relative path."""
    root = Path(mirrorlake.__file__).parents[1]
    with ZipFile(tmp_path / "mirrorlake.zip", "w") as archive:
        for file in (root / "mirrorlake").rglob("*.py*"):
            if file.suffix in (".py", ".pyi"):
                archive.write(file, file.relative_to(root))
    done = subprocess.run([sys.executable, "-c", _USED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["mirrorlake.lake.landing_log", "./mirrorlake.zip/mirrorlake/__init__.py"], (
        done.stderr
    )
