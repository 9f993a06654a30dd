"""Topics of a real broker: made at once, and shown as they were changed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.plan import Change
from mirrorlake.sandbox import KafkaCluster
from mirrorlake.topics import RemoteTopics
from tests.builders import mirror_config
from tests.kit.processes import wait_until
from tests.kit.records import topic_name
from tests.unit.topics.test_remote_topics import Written


def test_a_topic_that_the_broker_refuses_is_named_and_the_others_are_made(east: KafkaCluster) -> None:
    admin = ClusterAdmin("c", {"bootstrap.servers": east.bootstrap_servers})
    root, audit = topic_name("many"), Written()
    flow = mirror_config({"source": "a", "target": "c", "topics": f"{root}.*", "policy": "identity"}).flows[0]
    known = {name: KnownTopic(name=name, partitions=2) for name in (f"{root}.{n}" for n in range(40))}
    bad = f"{root}.7"
    known[bad] = KnownTopic(name=bad, configs={"retention.ms": "soon"})
    remotes = RemoteTopics(admin, flow, cast("Any", audit), cast("Any", None))
    with pytest.raises(ClusterError, match=f"create topic {bad}"):
        remotes.ensure([SourcePartition(name, 1, 0) for name in known], known, mirrored_before=())
    # A busy machine may take longer to show so many than those who make them wait.
    wait_until(lambda: admin.describe(known).keys() >= known.keys() - {bad}, "all others are in the metadata")
    there = admin.describe(known)
    assert there.keys() == known.keys() - {bad}
    assert [len(rows) for rows in audit.appends] == [39]
    made = remotes.of(there)
    assert {one.name for one in made.values()} == there.keys()
    known[bad] = KnownTopic(name=bad)
    remotes.ensure([SourcePartition(name, 1, 0) for name in known], known, mirrored_before=())
    assert admin.describe([bad])
    assert [len(rows) for rows in audit.appends] == [39, 1]


def test_what_was_waited_for_is_what_the_next_question_finds(east: KafkaCluster) -> None:
    admin = ClusterAdmin("east", {"bootstrap.servers": east.bootstrap_servers})
    wanted = {"retention.ms": "3600000"}

    def make(name: str, action: str, after: Any) -> None:
        change = Change(where="east", kind="topic", name=name, action=action, after=after)
        admin.apply(change)
        admin.wait_for([change])

    for name in (topic_name("shown") for _ in range(4)):
        make(name, "create", {"partitions": 2, "configs": {}})
        assert admin.describe([name])[name].partitions == 2
        make(name, "add_partitions", 3)
        assert admin.describe([name])[name].partitions == 3
        make(name, "set_configs", wanted)
        assert admin.configs([name]) == {name: wanted}


# A client that never answers again would be waited for without an end.
_LONGEST_S = 900
_ASKING = """
import sys
from concurrent.futures import ThreadPoolExecutor
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka import ClusterAdmin

def answers(admin):
    try:
        admin.require_answer(10)
    except ClusterUnreachable:
        return False
    return True

admins, said = [ClusterAdmin("own", {"bootstrap.servers": sys.argv[1]}) for _ in range(4)], None
with ThreadPoolExecutor() as pool:
    while True:
        found = all(pool.map(answers, admins))
        if found != said:
            print(said := found, flush=True)
"""


def test_who_asks_whether_the_only_broker_answers_outlives_its_end(make_cluster: Callable[..., KafkaCluster]) -> None:
    """A broker that ends answers for a moment that no broker is in service."""
    cluster = make_cluster().start()
    asking = [sys.executable, "-c", _ASKING, cluster.bootstrap_servers]
    with subprocess.Popen(asking, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = iter(process.stdout.readline, "")
        limit = threading.Timer(_LONGEST_S, process.kill)
        limit.start()
        try:
            assert "True\n" in lines
            cluster.stop()
            assert "False\n" in lines
            cluster.start()
            assert "True\n" in lines
            cluster.stop()
            assert "False\n" in lines
        finally:
            limit.cancel()
            process.kill()
