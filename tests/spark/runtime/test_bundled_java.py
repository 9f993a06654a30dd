"""Spark starts on the Java that comes as a wheel, where no other is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os
from mirrorlake.sandbox import find_java
java = find_java()
assert java.bundled, java
os.environ["JAVA_HOME"] = str(java.spark_java_home)
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.range(3).count() == 3
spark.stop()
"""


def test_spark_starts_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    # Everything but Java: Spark's launch scripts need a shell and its tools.
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "basename", "cat", "chmod", "dirname", "env", "grep", "hostname", "ls", "ps", "sh", "uname"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment | {"PATH": str(tools)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
