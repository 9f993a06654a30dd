"""A source behind a slow link: what no answer could hold within its time-out is landed, seconds by seconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable

from tests.chaos.cluster import Side
from tests.chaos.proxy import Weather
from tests.kit.commands import run_cli
from tests.kit.processes import running, wait_until
from tests.kit.records import commit, consume, create_topic, held, send, topic_name
from tests.servers.lakes import write_conf

RATE, RECORDS, SIZE = 200_000, 300, 10_000


@pytest.mark.law("F")
def test_law_f_a_source_behind_a_slow_link_is_landed_and_a_kill_costs_seconds(tmp_path: Path) -> None:
    side = Side("far", tmp_path / "brokers")
    side.start()
    try:
        topic, noise = topic_name("far"), np.random.default_rng(2611)
        create_topic(side.direct, topic, 1)
        # Batches of the size that producers make; all of them in one answer take 15 s, and a request may take 8.
        send(side.direct, topic, ((noise.bytes(SIZE), b"k", 0) for _ in range(RECORDS)), **{"batch.size": 30_000})
        commit(side.direct, "readers", topic, {0: 1})
        conf = write_conf(
            tmp_path,
            {"far": side.proxied, "never": "127.0.0.1:1"},
            [{"source": "far", "target": "never", "topics": topic}],
            far={"client": {"socket.timeout.ms": 8_000}},
        )
        side.set_weather(Weather(bytes_per_s=RATE))
        relay, land = str(tmp_path / "lake/relay/far"), ("land", "--source", "far", "--once", "--conf", str(conf))

        def landed() -> list[bytes]:
            return [row["value"] for row in held(relay, topic)] if DeltaTable.is_deltatable(relay) else []

        with running(tmp_path / "land.log", *land) as process:
            wait_until(lambda: landed() or not process.is_running, "something is landed")
            assert process.is_running, process.output
            before = len(landed())
            wait_until(lambda: len(landed()) > before or not process.is_running, "more is landed")
            process.kill()
        reached = len(landed())
        assert before < reached < RECORDS, "law F: landed in turns of seconds"
        side.set_weather()
        done = run_cli(*land, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) is not None
        values = [record.value for record in consume(side.direct, topic)[0]]
        assert sorted(landed()) == sorted(values), "law F: each record once"
    finally:
        side.kill()
