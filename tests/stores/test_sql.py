"""What needs Spark's S3A: publishing, SQL, pages of the relay and passports on a store, in a session that brings S3A along."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import environment
from tests.kit.records import consume, topic_name
from tests.servers.store import ACCESS_KEY, SECRET_KEY, StoreServer

# The session that tests share knows no S3: this one is of a process of its own.
_SCRIPT = """
import json, sys, threading
import mirrorlake as ml

mirror, topic = ml.load(sys.argv[1]), sys.argv[2]
mirror.apply()
rows = [(str(n), json.dumps({"n": n}), n % 2) for n in range(200)]
frame = mirror.spark.createDataFrame(rows, "key string, value string, partition int")
first = mirror.publish(frame, topic=topic, batch_id="one")
again = mirror.publish(frame, topic=topic, batch_id="one")
more = [frame.limit(50) for _ in range(2)]
threads = [threading.Thread(target=mirror.publish, args=(part,), kwargs={"topic": topic}) for part in more]
for one in threads: one.start()
for one in threads: one.join()
mirror.run(once=True)
[counted] = mirror.sql("SELECT count(*) AS n, count(DISTINCT partition, offset) AS places FROM records").collect()
page = mirror.browse("app", topic, key="7", count=5)
passport = mirror.passport("app", topic, 1, 3)
print(json.dumps({
    "published": first.records, "repeated": again.repeated, "counted": counted.n, "places": counted.places,
    "found": len(page.records), "passport": str(passport), "verified": mirror.verify().equal,
}))
"""


@pytest.mark.law("D", "E", "F")
def test_what_needs_s3a_runs_on_a_store(store_server: StoreServer, central: KafkaCluster, tmp_path: Path) -> None:
    topic, bucket = topic_name("app"), store_server.make_bucket(f"sql-{uuid4().hex[:8]}")
    settings = {
        "lake": {"root": f"s3a://{bucket}/mirror", "storage": store_server.settings},
        "clusters": {
            "app": {"kind": "lake", "topics": {topic: {"partitions": 2}}},
            "central": {"bootstrap_servers": central.bootstrap_servers},
        },
        "flows": [
            {"name": "app->central", "source": "app", "target": "central", "topics": topic, "policy": "identity"}
        ],
        "tracking": {"enabled": False},
    }
    conf = tmp_path / "mirror.yml"
    conf.write_text(json.dumps(settings))
    keys = {"STORE_ACCESS_KEY": ACCESS_KEY, "STORE_SECRET_KEY": SECRET_KEY}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(conf), topic],
        env=environment(**keys),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert SECRET_KEY not in done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["published"], said["repeated"]) == (200, True)
    assert said["counted"] == said["places"] == 300, "each offset once, although two published at the same time"
    assert said["verified"]
    assert said["found"]
    assert topic in said["passport"]
    arrived = consume(central, topic)
    assert {partition: len(records) for partition, records in arrived.items()}.keys() == {0, 1}
    assert sum(map(len, arrived.values())) == 300
