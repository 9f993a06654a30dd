"""A password that is rotated while a mirror runs, and a canary: secrets of every kind, and no place that tells one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
import pytest
from deltalake import DeltaTable
from nbclient import NotebookClient

from mirrorlake.config.loading import load
from mirrorlake.runtime import log_file
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli
from tests.kit.processes import Process, wait_until
from tests.kit.records import count, create_topic, send, topic_name
from tests.servers.secured import PASSWORD, STORE_PASSWORD, Secured

# Where the kernel finds the package.
AT_HOME = {"metadata": {"path": str(Path(__file__).parents[3])}}

OLD, NEW, HASH_KEY = "canaryold9f1", "canarynew9f1", "canaryhashkey9f1"


class Canaries:
    """What must stand nowhere, and where to look."""

    def __init__(self, secured: Secured) -> None:
        lines = [
            line for name in ("client.key", "client-encrypted.key") for line in secured.certificates.text(name).split()
        ]
        # A line from the middle of each key: its beginning is alike in all.
        keys = [line for line in lines if len(line) == 64][4::11]
        self.secrets = [
            OLD,
            NEW,
            HASH_KEY,
            STORE_PASSWORD,
            "canarywrong9f1",
            *keys,
        ]
        self._found = re.compile(b"|".join(re.escape(one.encode()) for one in self.secrets))

    def look(self, text: str | bytes, where: object) -> None:
        found = self._found.search(text if isinstance(text, bytes) else text.encode(errors="replace"))
        assert found is None, f"a secret stands in {where}: {found.group()[:9]!r}…" if found else ""

    def look_at(self, folder: Path) -> int:
        files = [path for path in folder.rglob("*") if path.is_file()]
        for path in files:
            with suppress(FileNotFoundError):
                self.look(path.read_bytes(), path)
        return len(files)

    def look_at_tables(self, lake: Path) -> int:
        tables = [path.parent for path in lake.rglob("_delta_log") if any(path.glob("*.json"))]
        for path in tables:
            table = DeltaTable(str(path))
            self.look(str(table.history()), f"the history of {path}")
            self.look(str(table.to_pyarrow_table().to_pylist()), path)
        return len(tables)

    def look_at_processes(self, root: int) -> int:
        tree = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                self.look(" ".join(process.cmdline()), f"the command line of {process.pid}")
        return len(tree)


@pytest.fixture
def settings(
    secured: Secured, central: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Write settings with a secret of every kind; the SCRAM password is in a file, and is `OLD`."""
    secrets = tmp_path / "secrets" / "kafka"
    secrets.mkdir(parents=True)
    (secrets / "password").write_text(OLD)
    (secrets / "hash-key").write_text(HASH_KEY)
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path / "secrets"))
    monkeypatch.setenv("CANARY_PASSPHRASE", STORE_PASSWORD)
    secured.set_scram(OLD)
    at = secured.certificates.path
    east = {
        **secured.client("SCRAM-SHA-512"),
        "sasl.password": "${secret:kafka/password}",
        "ssl.certificate.location": at("client.crt"),
        "ssl.key.location": at("client-encrypted.key"),
        "ssl.key.password": "${env:CANARY_PASSPHRASE}",
    }
    place = tmp_path / "place"
    place.mkdir()
    flow = {
        # The shared target has a ledger of another cluster's east->central.
        "name": "canary",
        "source": "east",
        "target": "central",
        "topics": topic_name("canary"),
        "rules": [{"name": "pii", "hash": {"fields": ["email"], "key": "${secret:kafka/hash-key}"}}],
    }
    clusters = {
        "east": {"bootstrap_servers": secured.address("SCRAM-SHA-512"), "client": east},
        "central": {"bootstrap_servers": central.bootstrap_servers},
    }
    path = place / "mirror.yml"
    path.write_text(json.dumps({"lake": {"root": "./lake"}, "clusters": clusters, "flows": [flow]}))
    yield path
    secured.set_scram(PASSWORD)


@pytest.mark.law("F")
def test_a_rotated_password_needs_no_restart_and_no_secret_is_left_anywhere(
    settings: Path, secured: Secured, central: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = settings.parent
    [flow] = load(settings).flows
    name, remote = str(flow.topics), f"east.{flow.topics}"
    create_topic(secured.cluster, name, 1)

    def write(number: int) -> None:
        send(secured.cluster, name, [(json.dumps({"email": f"{one}@example.com"}).encode(),) for one in range(number)])

    def said(*arguments: str, code: int | None = 0) -> str:
        done = run_cli(*arguments, "--conf", str(settings))
        (place / f"{arguments[0]}.out").write_text(done.stdout + done.stderr)
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    write(20)
    said("apply")
    said("run", "--once")
    assert count(central, remote) == 20

    events = place / "events"
    events.mkdir()
    given = f"--conf spark.eventLog.enabled=true --conf spark.eventLog.compress=false --conf spark.eventLog.dir={events.as_uri()}"
    with monkeypatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{given} pyspark-shell")
        patch.setenv("MIRRORLAKE_LOG", "DEBUG")
        process = Process(place / "always-on.log", "run", "--conf", str(settings))
        try:
            write(10)
            wait_until(lambda: count(central, remote) == 30 or not process.is_running, "records arrive")
            canaries = Canaries(secured)
            assert canaries.look_at_processes(process.popen.pid) > 2
            # The password is changed on the cluster, which ends its connections, before the mirror's file follows.
            secured.set_scram(NEW)
            secured.cluster.restart()
            write(10)
            wait_until(
                lambda: "LoginRefused" in process.output or "SASL" in process.output,
                "the login is refused",
            )
            (tmp_path / "secrets" / "kafka" / "password").write_text(NEW)
            wait_until(lambda: count(central, remote) == 40 or not process.is_running, "with the new one")
            assert process.is_running, process.output
            assert count(central, remote) == 40, "law F"
        finally:
            process.terminate()
    for log in log_file().parent.glob(f"*-{process.popen.pid}.log"):
        canaries.look(log.read_bytes(), log)

    said("verify", "--full")
    said("doctor", code=None)
    said("plan")
    (tmp_path / "secrets" / "kafka" / "password").write_text("canarywrong9f1")
    assert "SASL fails" in said("status", code=4)
    assert "SASL fails" in said("doctor", "--json", code=4)
    (tmp_path / "secrets" / "kafka" / "password").write_text(NEW)

    cells = [
        f"import mirrorlake as ml\nmirror = ml.load({str(settings)!r})\nmirror",
        "mirror.doctor()",
        "mirror['canary']",
        "mirror.config",
        "ml.console(mirror)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    executed = NotebookClient(notebook, timeout=400, kernel_name="python3", resources=AT_HOME).execute()
    (place / "executed.ipynb").write_text(nbformat.writes(executed))

    with pytest.raises(AssertionError, match="a secret stands in"):
        canaries.look_at(tmp_path / "secrets")
    assert canaries.look_at(place) > 20
    assert canaries.look_at(events) > 0
    assert canaries.look_at_tables(place / "lake") > 5
    canaries.look(log_file().read_bytes(), log_file())
    canaries.look_at_processes(os.getpid())
