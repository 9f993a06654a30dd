"""The command line as people type it: the README's lines, the demo, documents in JSON, and clusters and records that refuse."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from mirrorlake.errors import RecordTooLarge
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import copy_demo_conf, run_cli, told, write_conf
from tests.kit.processes import environment, wait_until
from tests.kit.records import create_topic, send, set_configs
from tests.servers.lakes import Pair

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, str(ROOT / "notebooks" / "demo"), "--conf", "conf/demo.yml", "--records", "2000"]
FLOW = {"source": "east", "target": "central", "topics": "orders"}


@pytest.mark.parametrize("command", [["plan"], ["run", "--once"], ["land", "--source", "east", "--once"]])
def test_an_unreachable_source_exits_4(command: list[str], central: KafkaCluster, tmp_path: Path) -> None:
    conf = write_conf(tmp_path, {"east": "127.0.0.1:9", "central": central.bootstrap_servers}, [FLOW])
    done = run_cli(*command, "--conf", str(conf), "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (4, "ClusterUnreachable")
    assert "cluster east does not answer: 127.0.0.1:9 connection refused" in done.stderr
    assert "clusters.east" in done.stderr


def test_doctor_names_the_layer_that_fails(east: KafkaCluster, spark: SparkSession, tmp_path: Path) -> None:
    conf = write_conf(tmp_path, {"east": east.bootstrap_servers, "central": "127.0.0.1:9"}, [FLOW])
    findings = told("doctor", "--conf", str(conf), code=4)["findings"]
    [bad] = [finding for finding in findings if not finding["ok"]]
    assert (bad["layer"], bad["subject"], bool(bad["fix"])) == ("cluster", "central", True)


@pytest.mark.law("C", "D", "F")
def test_law_f_a_record_that_the_target_refuses_stops_before_it_and_loses_nothing(pair: Pair) -> None:
    pair.create(100, partitions=1, max_message_bytes="2000000")
    create_topic(pair.central, pair.remote, 1, max_message_bytes="50000")
    send(pair.east, pair.topic, [(b"".join(uuid.uuid4().bytes for _ in range(20_000)), b"large")])
    pair.produce(100, seed=2)
    mirror = pair.mirror(sync={"configs": False}, chunk_records=60)
    with pytest.raises(RecordTooLarge, match=rf"{pair.topic}-0@100 .*max\.message\.bytes") as refused:
        mirror.run(once=True)
    assert refused.value.exit_code == 4
    assert mirror.query("SELECT count(*) AS records FROM relay_east").to_pylist() == [{"records": 201}]
    set_configs(pair.central, pair.remote, max_message_bytes="2000000")
    mirror.run(once=True)
    pair.check()


def test_json_documents_have_the_names_that_were_promised(pair: Pair) -> None:
    pair.create(20, partitions=1)
    pair.mirror()
    assert pair.told("plan", "--check", code=1)["changes"]
    pair.told("apply")
    assert pair.told("plan", "--check") == {"changes": [], "notes": []}
    assert pair.told("run", "--once")["landed"][0]["records"] == 20
    [row] = pair.told("status")["flows"][0]["partitions"]
    positions = dict.fromkeys(("source_end", "landed", "republished"), 20)
    judged = {"verdict": "OK", "state": "caught_up", "reason": "nothing waits"}
    zeros = dict.fromkeys(("partition", "offset_lag", "time_lag_ms", "blocked_offsets", "eta_ms"), 0)
    unknown = ("since", "proven_until", "expires_in_ms", "expires_why", "blocked_ms", "in_per_s", "out_per_s")
    assert row == {"topic": pair.topic, **positions, **judged, **zeros, **dict.fromkeys(unknown)}
    offsets = ("offsets", "--flow", "east->central", "--partition", "0", "--topic")
    assert pair.told(*offsets, pair.topic, "--offset", "7") == {
        "status": "exact",
        "upstream_offset": 7,
        "downstream_offset": 7,
        "topic": pair.remote,
        "partition": 0,
    }
    assert pair.told(*offsets, pair.remote, "--offset", "7", "--reverse")["upstream_offset"] == 7
    assert pair.told(*offsets, pair.topic, "--offset", "99")["status"] == "not_yet_republished"
    document = pair.told("verify")
    assert (document["equal"], document["differences"]) == (True, [])
    pair.told("doctor")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Give a folder with a copy of the demo's settings, whose ports are free; its sandbox ends with the test."""
    copy_demo_conf(tmp_path)
    yield tmp_path
    down = [sys.executable, "-m", "mirrorlake", "sandbox", "down", "--purge", "--conf", "conf/demo.yml"]
    subprocess.run(down, cwd=tmp_path, check=False)


def test_ctrl_c_in_the_middle_of_the_demo_leaves_nothing_running(place: Path) -> None:
    log = place / "demo.log"

    def lives(process: psutil.Process) -> bool:
        # It may end between the two questions.
        with suppress(psutil.NoSuchProcess):
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False

    with log.open("wb") as output:
        demo = subprocess.Popen(DEMO, cwd=place, stdout=output, stderr=subprocess.STDOUT, env=environment())
        try:
            wait_until(lambda: b"landing" in log.read_bytes(), "the demo lands")
            family = psutil.Process(demo.pid).children(recursive=True)
            assert family
            demo.send_signal(signal.SIGINT)
            assert demo.wait(400) != 0
        finally:
            if demo.poll() is None:
                demo.kill()
    wait_until(lambda: not any(map(lives, family)), "every process of the demo is gone")
    assert "Traceback" not in log.read_text(errors="replace")


def run_line(line: str, place: Path) -> tuple[int, str]:
    """Run a line of the README as it stands, but for what a machine without a cluster needs."""
    # `.venv/bin/` is this environment, conf/demo.yml listens on free ports, and the demo writes fewer records. Commands that
    # need a Spark session share one in this process: that a process of its own starts one is shown by the demo.
    words = shlex.split(line)
    is_demo = words == ["make", "demo"]
    assert is_demo or words[0] == ".venv/bin/mirrorlake", f"how is this run? {line}"
    if not is_demo and words[1] != "sandbox":
        done = run_cli(*words[1:])
    else:
        # Spark generates code here, as it does for users (tests/conftest.py).
        env = environment(PYTHONPATH=str(ROOT), SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1")
        command = DEMO if is_demo else [sys.executable, "-m", "mirrorlake", *words[1:]]
        done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=400, check=False)
    return done.returncode, done.stdout[-2000:] + done.stderr[-3000:]


def test_every_command_of_the_readme_works(place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (ROOT / "README.md").read_text()
    bash = "\n".join(re.findall(r"```bash\n(.*?)```", readme, re.DOTALL)).splitlines()
    lines = [line for line in bash if line and not line.startswith("#")]
    assert "sandbox down" in lines[-1]
    monkeypatch.chdir(place)
    for line in lines:
        code, said = run_line(line, place)
        # A doctor that looks at empty clusters finds that no topic is there yet.
        assert code in ((0, 1) if " doctor " in line else (0,)), f"{line}\n{said}"
        assert "Traceback" not in said, line
        if " verify " in line:
            # As `make lab` starts: in a folder of notebooks, below the one with the settings.
            (place / ".git").mkdir()
            (place / "notebooks").mkdir()
            monkeypatch.chdir(place / "notebooks")
            for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL):
                exec(block, {})  # noqa: S102  the README is ours
            monkeypatch.chdir(place)
            assert (place / "lake" / "relay" / "east").is_dir()
            assert not (place / "notebooks" / "lake").exists()
