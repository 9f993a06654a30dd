"""Law C: what a power cut leaves half on the disk is noticed and landed again; nothing says OK over records that are not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.kit.processes import staying_on, wait_until
from tests.kit.records import count, create_topic, produce, topic_name
from tests.servers.lakes import Pair


def logs(pair: Pair) -> Path:
    return pair.lake / "relay" / "east" / "_delta_log"


def land(pair: Pair, times: int) -> None:
    for seed in range(times):
        pair.produce(40, seed=seed)
        done = pair.cli("land", "--source", "east", "--once")
        assert done.returncode == 0, done.stderr


def run(pair: Pair) -> None:
    for command in (("run", "--once"), ("verify",)):
        done = pair.cli(*command)
        assert done.returncode == 0, done.stderr + done.stdout
    pair.check(with_map=True)


@pytest.mark.law("C", "E", "F")
def test_law_c_what_a_relay_lost_that_its_positions_know_is_landed_again(pair: Pair) -> None:
    pair.create(300)
    mirror = pair.mirror()
    run(pair)
    land(pair, 3)
    for file in sorted(logs(pair).glob("*.json"))[-4:]:
        file.write_bytes(b"")
    run(pair)
    assert count(pair.central, pair.remote) == 420, "the position survived, the records did not"

    # A lake that is older than its ledgers: put back from a copy as docs/upgrades.md says, or its relay by Delta.
    copy = pair.lake.with_name("copy")
    shutil.copytree(pair.lake, copy)
    land(pair, 3)
    run(pair)
    assert pair.cli("maintain").returncode == 0, "ledgers are trimmed"
    for left in ("offset_map",):
        shutil.rmtree(copy / "meta" / left)
        (pair.lake / "meta" / left).rename(copy / "meta" / left)
    shutil.rmtree(pair.lake)
    copy.rename(pair.lake)
    run(pair)
    assert pair.cli("repair", "--source", "east").returncode == 0
    version = DeltaTable(logs(pair).parent).version()
    land(pair, 2)
    mirror.spark.sql(f"RESTORE delta.`{logs(pair).parent}` TO VERSION AS OF {version}")
    run(pair)
    assert count(pair.central, pair.remote) == 620


@pytest.mark.law("C")
def test_law_c_log_checkpoints_and_side_tables_that_are_cut_stop_no_command_for_ever(pair: Pair) -> None:
    pair.create(300)
    pair.mirror()
    run(pair)
    for location in (pair.lake / "relay/east", pair.lake / "meta/offset_map"):
        DeltaTable(location).create_checkpoint()
        [newest] = (location / "_delta_log").glob("*.checkpoint.parquet")
        newest.write_bytes(b"")
    assert pair.cli("status").returncode == 0
    pair.produce(40, seed=2)
    run(pair)

    cut = set()
    for table in (pair.lake / "meta").iterdir():
        if files := sorted(table.glob("*.parquet"), key=lambda file: file.stat().st_mtime):
            files[-1].write_bytes(b"")
            cut.add(table.name)
    assert cut >= {"audit", "metadata", "offset_map", "positions"}
    refused = pair.cli("run", "--once")
    assert refused.returncode == 4
    assert "cannot be read" in refused.stderr
    assert "mirrorlake repair --source A" in refused.stderr
    assert pair.cli("doctor", "--only", "lake").returncode == 1
    looked = pair.cli("repair", "--source", "east", "--check", "--json")
    assert looked.returncode == 1
    assert {one["name"] for one in json.loads(looked.stdout)["tables"]} == cut
    done = pair.cli("repair", "--source", "east")
    assert done.returncode == 0, done.stderr
    pair.produce(40, seed=3)
    run(pair)
    assert pair.cli("maintain").returncode == 0
    assert len(pair.landed()) == 380, "nothing was landed twice"


@pytest.mark.law("C", "D", "E", "F")
def test_law_c_record_files_that_are_cut_are_landed_again_and_what_left_the_source_is_a_gap(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "ready_interval_s=2,waiting_topics_interval_s=2")
    pair.create(300)
    beside = topic_name("beside")
    create_topic(pair.east, beside, 1)
    pair.mirror(topics=[pair.topic, beside])
    run(pair)
    land(pair, 2)
    produce(pair.east, beside, 20, partitions=1)
    files = sorted(logs(pair).parent.glob("*.parquet"), key=lambda file: file.stat().st_mtime)
    files[0].write_bytes(b"")
    files[-1].write_bytes(files[-1].read_bytes()[:-100])
    files[1].unlink()
    both = [pair.topic, beside]
    late = pair.flow(name="late", topics=both, policy={"template": "late.{topic}"})
    mirror = pair.mirror(pair.flow(topics=both), late)
    refused = pair.cli("run", "--once")
    assert refused.returncode == 4
    assert "mirrorlake repair --source east" in refused.stderr
    assert count(pair.central, f"late.{beside}") == 20, "law F: only the topic of the broken file waits"
    assert pair.cli("repair", "--source", "east", "--check").returncode == 1
    assert pair.cli("doctor", "--only", "lake").returncode == 1
    held = {f"{flow}: topic {pair.topic}" for flow in ("east->central", "late")}
    with staying_on(mirror) as failures:
        wait_until(lambda: failures or mirror.parked().keys() == held, "the topic waits by name in both flows")
        produce(pair.east, beside, 10, partitions=1, seed=2)
        wait_until(lambda: failures or count(pair.central, f"late.{beside}") == 30, "the other goes on")
        done = pair.cli("repair", "--source", "east")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: failures or not mirror.parked(), "it goes on by itself")
    run(pair)
    assert count(pair.central, f"late.{pair.topic}") == 380
