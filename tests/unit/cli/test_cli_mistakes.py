"""A user's mistake ends with a sentence and an exit code, never with a traceback; none of these starts a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mirrorlake
from tests.kit.commands import run_cli

GOOD = """
lake: {root: ./lake}
clusters:
  east: {bootstrap_servers: "127.0.0.1:1"}
  west: {bootstrap_servers: "127.0.0.1:2"}
flows:
  - {source: east, target: west, topics: orders}
"""


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "mirror.yml"
    path.write_text(GOOD)
    return str(path)


def test_a_faulty_file_is_refused_with_file_place_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yml"
    path.write_text(GOOD.replace("topics", "topcs"))
    done = run_cli("plan", "--conf", str(path), "--json")
    assert done.returncode == 2
    for said in (path.name, "topics", "Next:"):
        assert said in done.stderr
    told = json.loads(done.stdout)
    assert (told["exit_code"], bool(told["faults"])) == (2, True)


def test_the_version_is_said_before_any_command() -> None:
    done = run_cli("--version")
    assert (done.returncode, done.stdout) == (0, f"{mirrorlake.__version__}\n")


WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
mirrorlake.errors.LaneFenced: another republisher owns it; this one stopped. Next: mirrorlake status

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
Caused by: java.lang.RuntimeException: later
"""


@pytest.mark.parametrize(
    ("name", "module", "text", "says"),
    [
        ("ValueError", "builtins", "epoch out of range", "epoch out of range"),
        ("PythonException", "pyspark.errors.exceptions.captured", WORKER, "LaneFenced: another republisher owns it"),
        ("Py4JJavaError", "py4j.protocol", "An error occurred\nCaused by: a.b.IllegalStateException: gone", "gone"),
        ("KeyError", "builtins", "", "KeyError"),
    ],
)
def test_no_foreign_error_reaches_the_user_bare(
    name: str, module: str, text: str, says: str, good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = type(name, (Exception,), {"__module__": module})

    def fail(*_: object, **__: object) -> None:
        raise foreign(*([text] if text else []))

    monkeypatch.setattr("mirrorlake.mirror.load", fail)
    done = run_cli("verify", "--conf", good, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["exit_code"]) == (4, 4)
    assert says in told["cause"]
    assert not told["cause"].startswith(name)
    assert told["consequence"]
    assert told["remedy"]
    assert len(done.stderr.strip().splitlines()) == 1, "one sentence, no traceback"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["status", "--flow", "east->wset"], "did you mean 'east->west'?"),
        (["land", "--source", "eest", "--once"], "did you mean 'east'?"),
        (["records", "--cluster", "wst", "--topic", "orders"], "did you mean 'west'?"),
        (["statsu"], "Did you mean 'status'?"),
        (["republish", "--flow", "nope"], "east"),
        (["land"], "error:"),
        (["offsets", "--flow", "x", "--topic", "t", "--partition", "-1", "--offset", "2"], "error:"),
    ],
)
def test_a_mistyped_name_gets_the_closest_and_an_unknown_one_those_that_are_known(
    arguments: list[str], meant: str, good: str
) -> None:
    done = run_cli(*arguments, *(["--conf", good] if len(arguments) > 1 else []))
    assert (done.returncode, meant in done.stderr) == (2, True), done.stderr


def test_a_run_that_can_do_nothing_ends_at_once_and_names_the_address(good: str, tmp_path: Path) -> None:
    done = run_cli("run", "--conf", good, "--json")
    assert done.returncode == 4
    *lines, error = done.stderr.strip().splitlines()
    said = [json.loads(line) for line in lines]
    assert [one["stage"] for one in said] == ["run", "settings", "clusters", "clusters", "clusters"]
    assert Path(said[1]["log"]).is_file()
    assert "east does not answer: 127.0.0.1:1 connection refused" in said[2 + 1]["text"]
    assert error.startswith("error: cluster east does not answer: 127.0.0.1:1 connection refused")
    assert json.loads(done.stdout)["error"] == "ClusterUnreachable"
    assert not (tmp_path / "lake" / "meta").exists()


@pytest.mark.parametrize("mistake", [["nothere.jsonl"], [__file__, "--cluster", "west"]], ids=["file", "cluster"])
def test_nothing_is_started_to_publish_what_cannot_be(
    mistake: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("mirrorlake.context.context.Context.spark", property(start))
    path = tmp_path / "mirror.yml"
    path.write_text(GOOD.replace('east: {bootstrap_servers: "127.0.0.1:1"}', "east: {kind: lake}"))
    done = run_cli("publish", *mistake, "--topic", "orders", "--conf", str(path))
    assert (done.returncode, "nothing was published" in done.stderr) == (2, True), done.stderr
