"""A Spark Connect server from the pyspark distribution, and our jobs as its clients in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pytest
from pyspark.find_spark_home import _find_spark_home

from mirrorlake.runtime import find_java
from mirrorlake.runtime import session as own_session
from mirrorlake.sandbox.ports import LOOPBACK, free_ports

HOUSE = Path(__file__).parents[2]
_LONGEST_STEP_S = 600
# What runs in the process of a client: a step a line, SQL or what a job does, each with its exit code and what it printed.
_CLIENT = """
import contextlib, io, json, runpy, sys
for line in sys.stdin:
    step, out, code = json.loads(line), io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        if step[0] == "sql":
            from pyspark.sql import SparkSession
            SparkSession.builder.getOrCreate().sql(step[1])
        else:
            sys.argv = step
            try:
                if step[0].endswith(".py"):
                    runpy.run_path(step[0], run_name="__main__")
                else:
                    from mirrorlake.cli import main
                    main(step)
            except SystemExit as ended:
                code = ended.code or 0
    print(json.dumps({"code": code, "said": out.getvalue()}), flush=True)
"""


class Said(NamedTuple):
    """What a step gave: what it printed, and what its process said besides."""

    text: str
    log: str

    @property
    def document(self) -> Any:
        """Its JSON document."""
        return json.loads(self.text)


class ConnectServer:
    """A running server; `address` is what `SPARK_REMOTE` takes."""

    def __init__(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self.address = f"sc://{LOOPBACK}:{self._port}"
        self._folder = folder
        self._log = folder / "connect.log"

    def start(self) -> None:
        from tests.kit.processes import wait_until

        settings = {
            "spark.master": "local[8]",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            # The jars, and the JVM's options with the archive of Spark's classes: those of a session of our own.
            **own_session._driver_conf(find_java()),
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self._port),
            # With the default of 100 entries, a client of a catalog compiles the same code again and again.
            "spark.sql.codegen.cache.maxEntries": "3000",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            # For the SQL of tests: sessions of the package set the same.
            **own_session.RUNTIME,
            "spark.ui.enabled": "false",
        }
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        given = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
        command = [f"{_find_spark_home()}/bin/spark-submit", *given, "--class", main, "spark-internal"]
        paths = os.pathsep.join([str(HOUSE), os.environ.get("PYTHONPATH", "")])
        own = {"JAVA_HOME": str(find_java().spark_java_home), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths}
        with self._log.open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self._folder, env={**os.environ, **own})
        self._process = process
        wait_until(lambda: self.is_up or process.poll() is not None, "the Connect server listens")
        assert process.poll() is None, self.log[-4000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self._port)) == 0

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def client(self, *arguments: str, stderr: int | IO[str] = subprocess.PIPE, **environ: str) -> subprocess.Popen[str]:
        """Start a Python process that is a client of this server, and has no other Spark."""
        paths = os.pathsep.join([str(HOUSE), os.environ.get("PYTHONPATH", "")])
        own = {"SPARK_REMOTE": self.address, "PYTHONPATH": paths, "JAVA_HOME": "/nonexistent", "PYTHONUNBUFFERED": "1"}
        environment = (
            {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")} | own | environ
        )
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
            cwd=self._folder,
        )

    @contextmanager
    def steps(self, **environ: str) -> Iterator[Callable[..., Said]]:
        """Give what runs steps in one client, one when it is called: `"sql", text`, or a job's file or a command with arguments.

        A step must end with `code`.
        """
        log = self._folder / "client.log"
        with log.open("w") as stderr, self.client("-c", _CLIENT, stderr=stderr, **environ) as process:
            given, told = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)

            def run(*step: str, code: int = 0) -> Said:
                given.write(json.dumps(step) + "\n")
                given.flush()
                limit = threading.Timer(_LONGEST_STEP_S, process.kill)
                limit.start()
                line = told.readline()
                limit.cancel()
                err = log.read_text(errors="replace")
                assert line, f"{step} ended its process:\n{err[-6000:]}"
                ended, text = (json.loads(line)[name] for name in ("code", "said"))
                assert ended == code, f"{step}: {ended}\n{err[-6000:]}"
                return Said(text, err)

            yield run


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    folder = tmp_path_factory.mktemp("connect")
    server = ConnectServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder / "warehouse", ignore_errors=True)
