"""A schema registry as a fixture: Apicurio, which speaks Confluent's API; what it was given survives its end."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from mirrorlake.runtime import cache_directory, find_java, jars, locked
from mirrorlake.sandbox.ports import LOOPBACK, free_ports
from mirrorlake.sandbox.process import start_process

_API = "/apis/ccompat/v7"
_JAVA_OPTIONS = ("-Xms64m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class RegistryServer:
    """One registry in a folder, with these properties for its storage; `url` is its Confluent API, the same after each start."""

    def __init__(self, folder: Path, **storage: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self.url = f"http://{LOOPBACK}:{self.port}{_API}"
        self.log_path = folder / "registry.log"
        file = f"jdbc:h2:file:{folder / 'registry'};WRITE_DELAY=0"
        self._storage = storage or {"apicurio.datasource.url": file}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> RegistryServer:
        """Start it, and wait until it answers."""
        from tests.kit.processes import wait_until

        properties = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": self.port,
            **self._storage,
        }
        command = [
            str(find_java().executable),
            *_JAVA_OPTIONS,
            *(f"-D{name}={value}" for name, value in properties.items()),
            *("-jar", str(_runner())),
        ]
        self._process = process = start_process(command, log=self.log_path, tied=True)
        wait_until(lambda: self.is_up or process.poll() is not None, "the registry answers")
        assert process.poll() is None, self.log_path.read_text(errors="replace")[-4000:]
        return self

    @property
    def is_up(self) -> bool:
        try:
            with urlopen(f"{self.url}/subjects", timeout=1) as answer:  # noqa: S310 - a loopback address of our own
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def kill(self) -> None:
        """End it like a power cut; it keeps what it was given."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _runner() -> Path:
    """Return the runner of the unpacked archive; it is unpacked once on this machine."""
    [archive] = jars("registry")
    name = archive.name.removesuffix(".tar.gz")
    folder = cache_directory() / "registry" / f"{name}-{archive.parent.name}"
    with locked(folder.parent / f"{folder.name}.lock"):
        if not folder.exists():
            part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                with tarfile.open(archive) as content:
                    content.extractall(part / "all", filter="data")
                (part / "all").replace(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    [runner] = folder.glob("*-runner.jar")
    return runner


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """Start the registry that tests share, who keep apart by the names of their subjects."""
    server = RegistryServer(tmp_path_factory.mktemp("registry")).start()
    yield server
    server.kill()
