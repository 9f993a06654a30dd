"""The host is taken as found: a user without name and home, pipes without readers, full disks, a Spark session of others."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.commands import write_conf
from tests.kit.processes import environment, wait_until
from tests.kit.records import count, produce

# Any number may be given to a container. The interpreter of the tests may be in the home of root.
_NOBODY = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
_NOBODY += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
_RECORDS = 60


class Host:
    """A folder with brokers and a mirror of a user who has no name, no home, and a cache that only others write."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mirrorlake-host-"))
        self.addresses = dict(zip(("east", "central"), _free_addresses(2), strict=True))
        self.conf = write_conf(
            self.folder, self.addresses, [{"source": "east", "target": "central", "topics": "orders"}]
        )
        for name in ("tmp", "work"):
            (self.folder / name).mkdir()
        self.user: list[str] = []
        if os.geteuid() == 0:
            self.user = _NOBODY
            for place in (self.folder, *self.folder.rglob("*")):
                os.chown(place, 12345, 12345)
        cache = os.environ.get("MIRRORLAKE_CACHE") or str(Path("~/.cache/mirrorlake").expanduser())
        self.environ = environment(HOME="/", MIRRORLAKE_CACHE=cache, TMPDIR=str(self.folder / "tmp"))
        for name in ("USER", "LOGNAME", "USERNAME", "LNAME", "PYTHONUNBUFFERED"):
            self.environ.pop(name, None)

    def command(self, *arguments: str) -> list[str]:
        return [*self.user, sys.executable, "-m", "mirrorlake", *arguments, "--conf", str(self.conf)]

    def run(self, *arguments: str, redirected: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command, with the redirections of `redirected`."""
        words = self.command(*arguments)
        if redirected:
            words = ["sh", "-c", f'exec "$@" {redirected}', "sh", *words]
        return self._run(words)

    def tell(self, *arguments: str, code: int = 0) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        assert "nanobind" not in done.stderr
        return json.loads(done.stdout)

    def script(self, text: str, *, as_user: bool = False) -> str:
        done = self._run([*(self.user if as_user else []), sys.executable, "-c", text, str(self.conf)])
        assert done.returncode == 0, done.stdout + done.stderr
        assert "nanobind" not in done.stderr
        return done.stdout

    def unread(self, *arguments: str, both: bool = False) -> tuple[int, str]:
        """Run a command whose readers leave before it has anything to say; return its code and what it told on standard error."""
        said = subprocess.PIPE
        process = subprocess.Popen(
            self.command(*arguments), cwd=self.folder / "work", env=self.environ, stdout=said, stderr=said, text=True
        )
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        if both:
            process.stderr.close()
            return process.wait(400), ""
        errors = process.stderr.read()
        return process.wait(400), errors

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        work = self.folder / "work"
        return subprocess.run(
            words, cwd=work, env=self.environ, capture_output=True, text=True, timeout=400, check=False
        )


def _free_addresses(number: int) -> list[str]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in taken]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    made = Host()
    try:
        done = made.run("sandbox", "up", "--records", str(_RECORDS))
        assert done.returncode == 0, done.stdout + done.stderr
        yield made
    finally:
        made.run("sandbox", "down", "--purge")
        shutil.rmtree(made.folder, ignore_errors=True)


def test_a_user_id_without_name_home_and_cache_mirrors_and_proves(host: Host) -> None:
    host.tell("apply")
    host.tell("run", "--once")
    [flow] = host.tell("status")["flows"]
    assert {one["offset_lag"] for one in flow["partitions"]} == {0}
    sent = count(host.addresses["central"], "east.orders")
    assert sent == count(host.addresses["east"], "orders") > 0
    assert host.tell("verify")["equal"]
    found = json.loads(host.run("doctor", "--json").stdout)
    assert not [one for one in found["findings"] if one["severity"] == "failure"]
    if host.user:
        assert any(
            one["subject"] == "cache" and "MIRRORLAKE_CACHE" in one["fix"] and str(host.folder / "tmp") in one["detail"]
            for one in found["findings"]
        )
    # Java calls the home of such a user "?", and libraries make it where the command was called.
    assert list((host.folder / "work").glob("?")) == []


def test_a_reader_that_left_ends_a_command_quietly(host: Host) -> None:
    for words in (("status", "--json"), ("status",), ("topics", "--help")):
        code, said = host.unread(*words)
        assert (code, said) == (141, ""), words


def test_closed_streams_are_no_error_and_a_full_disk_is_one(host: Host) -> None:
    closed = host.run("offsets", "--help", redirected=">&-")
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, "", "")
    assert host.run("status", "--json", redirected=">&- 2>&-").returncode == 0
    full = host.run("status", "--json", redirected=">/dev/full")
    assert full.returncode == 4, full.stderr
    [line] = full.stderr.splitlines()
    assert line.startswith("error: standard output cannot be written: No space left on device")


def test_a_run_goes_on_without_readers(host: Host) -> None:
    produce(host.addresses["east"], "orders", 20, seed=2)
    before = count(host.addresses["east"], "orders")
    code, _ = host.unread("run", "--once", both=True)
    assert code == 141
    assert count(host.addresses["central"], "east.orders") == before


# A thread that waits for ever, as Spark's client and many notebooks have them, keeps what it can reach when Python ends.
_SCRIPT = """
import sys, threading, time
import mirrorlake as ml

def watch():
    while True:
        time.sleep(60)

mirror = ml.load(sys.argv[1])
mirror.run(once=True)
assert mirror.query("SELECT count(*) AS n FROM offset_map").num_rows == 1
threading.Thread(target=watch, daemon=True).start()
print("done")
"""


def test_scripts_end_with_their_own_words(host: Host) -> None:
    assert host.script(_SCRIPT, as_user=True).splitlines()[-1] == "done"


def test_the_suite_ends_with_its_own_words() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/config/test_evaluation.py"]
    root = Path(__file__).parents[2]
    done = subprocess.run(words, cwd=root, env=environment(), capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nanobind" not in done.stdout + done.stderr


_SESSION = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import mirrorlake as ml
from mirrorlake.errors import UsageError

told = json.loads(Path(sys.argv[1]).read_text())
root = Path(sys.argv[1]).parent / "of others"
plain = {
    **told,
    "lake": {"root": str(root / "live")},
    "flows": [{**told["flows"][0], "name": "plain", "policy": {"template": "plain.{topic}"}}],
}
streaming = {
    **told,
    "lake": {"root": str(root / "streaming")},
    "clusters": {**told["clusters"], "east": {**told["clusters"]["east"], "land": {"execution": "streaming"}}},
    "flows": [{**told["flows"][0], "name": "streamed", "execution": "streaming", "policy": {"template": "streamed.{topic}"}}],
}
quiet = lambda: None


def refused(call):
    try:
        call()
    except UsageError as error:
        return str(error)
    raise AssertionError("it was not refused")


settings = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = settings.config("spark.driver.host", "127.0.0.1").getOrCreate()
fresh = ml.from_settings(plain, display=quiet)
fresh.status()
fresh.plan()
# Live tasks land and send without a jar.
fresh.run(once=True)
assert fresh.query("SELECT count(*) AS n FROM offset_map").num_rows == 1
assert fresh["plain"].verify().equal
streams = ml.from_settings(streaming, display=quiet)
said = refused(lambda: streams.run(once=True))
for part in ("Delta's jar", "Kafka source", "spark.jars.packages=", "spark.sql.extensions=", "spark.sql.catalog.spark_catalog="):
    assert part in said, said

# Stopped in its JVM alone, which PySpark does not see.
spark._jsc.sc().stop()
given = ml.from_settings(plain, spark=spark, display=quiet)
given.status()
assert "was stopped" in refused(lambda: given.spark)
spark.stop()
assert "was stopped" in refused(lambda: given.spark)
streams.run(once=True)
streams.spark.stop()
streams.run(once=True)
assert streams["streamed"].verify().equal
print("done")
"""


def test_questions_need_nothing_of_a_session_and_streams_say_what_it_lacks(host: Host) -> None:
    wait_until(lambda: count(host.addresses["east"], "orders"), "there are records")
    assert host.script(_SESSION).splitlines()[-1] == "done"
    assert count(host.addresses["central"], "streamed.orders") == count(host.addresses["east"], "orders")
