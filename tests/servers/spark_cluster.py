"""A standalone Spark cluster of this machine: a master and two workers, started from the installed pyspark, on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from zipfile import ZIP_DEFLATED, ZipFile

import psutil
import pyspark
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import mirrorlake
from mirrorlake.runtime import session as own_session
from mirrorlake.runtime.java import find_java

_SPARK_HOME = Path(pyspark.__file__).parent
_ROOT = Path(mirrorlake.__file__).parents[1]
# Two hundred megabytes and a thread less for each of the JVMs.
_SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss4m")
_OPENS = ("java.lang", "java.nio", "java.net", "java.util", "java.util.concurrent", "sun.nio.ch", "sun.util.calendar")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_ROLES = ("driver", "executor")
_EXECUTOR = "CoarseGrainedExecutorBackend"
WORKERS, SLOTS = 2, 4

T = TypeVar("T")


class SparkCluster:
    """Start it, submit jobs to it, and kill what a test wants to see dead.

    Every JVM starts from the archive of classes that our own sessions start from, with the jars on its class path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._env = {
            **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE")},
            "JAVA_HOME": str(find_java().spark_java_home),
            "SPARK_HOME": str(_SPARK_HOME),
            # What `spark-class` would find out for a worker, which asks for it to start executors.
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }
        self.package = packed(folder)
        ours = own_session._driver_conf(find_java())
        archived = [one for one in shlex.split(ours[own_session._OPTIONS]) if one not in own_session._JAVA_OPTIONS]
        self._options, self._class_path = (*_SMALL, *archived), ours["spark.driver.extraClassPath"]

    def start(self) -> None:
        log = self._daemon("master", "deploy.master.Master", "--port", "0", "--webui-port", "0")
        self.master = _until(lambda: _MASTER.findall(log.read_text()))[0]
        for number in range(WORKERS):
            self._daemon(
                f"worker-{number}",
                "deploy.worker.Worker",
                *("--port", "0", "--webui-port", "0", "--cores", str(SLOTS), "--memory", "1g"),
                *("--work-dir", str(self.folder / f"work-{number}"), self.master),
            )
        _until(lambda: log.read_text().count("Registering worker") == WORKERS)

    def _daemon(self, name: str, of: str, *arguments: str) -> Path:
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS]
        # Java compares the class path with the archive's: the order is that of Spark's launcher.
        logging = map(str, (_SPARK_HOME / "jars").glob("slf4j-api-*.jar"))
        class_path = os.pathsep.join((self._class_path, *logging, f"{_SPARK_HOME}/jars/*"))
        command = [f"{self._env['JAVA_HOME']}/bin/java", "-Xmx256m", *self._options, *opens, "-cp", class_path]
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            call = [*command, f"org.apache.spark.{of}", "--host", "127.0.0.1", *arguments]
            self._daemons.append(subprocess.Popen(call, env=self._env, stdout=out, stderr=out, cwd=self.folder))
        return log

    def submit(self, log: Path, command: str, *arguments: str, **conf: str) -> subprocess.Popen[bytes]:
        """Submit a command as a job with the package as a zip; nothing of this checkout is on anybody's path."""
        settings = {
            "spark.executor.memory": "640m",
            **dict.fromkeys((f"spark.{role}.extraJavaOptions" for role in _ROLES), shlex.join(self._options)),
            **dict.fromkeys((f"spark.{role}.extraClassPath" for role in _ROLES), self._class_path),
            "spark.ui.enabled": "false",
            **{name.replace("_", "."): value for name, value in conf.items()},
        }
        call = [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", self.master, "--py-files", str(self.package)),
            *(text for key, value in settings.items() for text in ("--conf", f"{key}={value}")),
            *(str(_ROOT / "jobs" / "mirrorlake.py"), command, *arguments),
        ]
        with log.open("ab") as out:
            return subprocess.Popen(call, env=self._env, stdout=out, stderr=out, cwd=self.folder)

    def executors(self, worker: int) -> list[psutil.Process]:
        """The executors of a worker that run."""
        found = []
        for process in self._below(worker):
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(_EXECUTOR in word for word in process.cmdline()):
                    found.append(process)
        return found

    def senders(self, worker: int, port: int) -> list[psutil.Process]:
        """The Python workers of a worker that are connected to a port: those that send there, or fetch from there."""
        found = []
        for process in self._below(worker):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name().startswith("python") and any(
                    one.raddr and one.raddr.port == port for one in process.net_connections("tcp")
                ):
                    found.append(process)
        return found

    def kill_worker(self, worker: int) -> None:
        """Kill a worker as a machine dies: with all that runs on it, in no time to say a word."""
        below = self._below(worker)
        self._daemons[1 + worker].kill()
        for process in below:
            _kill(process)
        self._daemons[1 + worker].wait()

    def stop(self) -> None:
        for number, daemon in reversed(list(enumerate(self._daemons))):
            below = self._below(number - 1) if number else []
            daemon.kill()
            for process in below:
                _kill(process)
            daemon.wait()

    def _below(self, worker: int) -> list[psutil.Process]:
        try:
            return psutil.Process(self._daemons[1 + worker].pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


def _until(condition: Callable[[], T]) -> T:
    """Wait for a condition to come true, and return what it gave."""
    retry = retry_if_result(lambda found: not found)
    return Retrying(retry=retry, stop=stop_after_delay(300), wait=wait_fixed(0.1))(condition)


def packed(folder: Path) -> Path:
    """Pack the package as its wheel does, under a name that Spark puts on the path of its workers."""
    path = folder / "mirrorlake.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for file in sorted((_ROOT / "mirrorlake").rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                archive.write(file, file.relative_to(_ROOT))
    return path


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark_cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
