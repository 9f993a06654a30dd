"""A server of the S3 API on loopback: moto's, in a process of its own, one request at a time as S3 decides one put at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import fs

from mirrorlake.runtime import Store

ACCESS_KEY, SECRET_KEY = "mirrorlake-access", "store-canary-7f3a"


def serve(*, overwrites: bool = False, requests: str = "") -> None:
    """Serve until the standard input ends, as it does with the process that started this one.

    With `overwrites` a put ignores its condition, as stores without conditional puts do. Each request is a line of the file
    `requests`: its method, LIST for a listing, and the object.
    """
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: object) -> None:
            pass

    app, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environment: dict[str, object], start: object) -> object:
        # moto looks for the key and puts it in two steps, which S3 does in one.
        if overwrites:
            environment.pop("HTTP_IF_NONE_MATCH", None)
        if requests:
            is_listing = "list-type=" in str(environment["QUERY_STRING"])
            with Path(requests).open("a") as file:
                file.write(f"{'LIST' if is_listing else environment['REQUEST_METHOD']} {environment['PATH_INFO']}\n")
        with lock:
            return app(environment, start)

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()


@dataclass(frozen=True)
class StoreServer:
    """The server; its settings are those of `lake.storage`, but for the keys, which tests put into the environment."""

    port: int
    requests: str = ""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def values(self) -> dict[str, str]:
        """What `lake.storage` resolves to."""
        keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
        return {"endpoint": self.endpoint, "region": "us-east-1", "path_style": "true", "allow_http": "true", **keys}

    @property
    def settings(self) -> dict[str, object]:
        """What a settings file says under `lake.storage`."""
        keys = {"access_key": "${env:STORE_ACCESS_KEY}", "secret_key": "${env:STORE_SECRET_KEY}"}
        return {"endpoint": self.endpoint, "region": "us-east-1", "path_style": True, "allow_http": True, **keys}

    def files(self) -> fs.FileSystem:
        return Store("s3a://any", self.values).for_arrow

    def objects(self, place: str) -> dict[str, bytes]:
        """Read the objects below a place of the store, by name."""
        files = self.files()
        found = files.get_file_info(fs.FileSelector(place, recursive=True))
        return {
            info.path.removeprefix(f"{place}/"): files.open_input_stream(info.path).read()
            for info in found
            if info.type == fs.FileType.File
        }

    def counted(self, do: Callable[[], object]) -> Counter[str]:
        """Do something, and count the requests that it makes, by method; it served nobody else meanwhile."""
        log = Path(self.requests)
        before = len(log.read_text().splitlines())
        do()
        return Counter(line.split(" ")[0] for line in log.read_text().splitlines()[before:])

    def put(self, place: str, objects: Mapping[str, bytes]) -> None:
        """Put what stood below another place; a Delta log holds no absolute path, so tables go with their folder."""
        files = self.files()
        for name, content in objects.items():
            with files.open_output_stream(f"{place}/{name}") as file:
                file.write(content)

    def make_bucket(self, name: str) -> str:
        arguments = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": "us-east-1"}
        place = f"127.0.0.1:{self.port}"
        files = fs.S3FileSystem(endpoint_override=place, scheme="http", allow_bucket_creation=True, **arguments)
        files.create_dir(name)
        return name


@contextmanager
def serving(arguments: str = "", *, requests: str = "", **environment: str) -> Iterator[StoreServer]:
    command = [
        sys.executable,
        "-c",
        f"from tests.servers.store import serve; serve({arguments or f'requests={requests!r}'})",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            assert process.stdout is not None
            yield StoreServer(int(process.stdout.readline()), requests)
        finally:
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    requests = tmp_path_factory.mktemp("store") / "requests"
    requests.touch()
    with serving(requests=str(requests)) as server:
        yield server


@pytest.fixture(scope="module")
def store_keys() -> Iterator[None]:
    """Put the keys of the server where `StoreServer.settings` refers to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORE_ACCESS_KEY", ACCESS_KEY)
        patch.setenv("STORE_SECRET_KEY", SECRET_KEY)
        yield
