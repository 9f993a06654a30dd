"""Many remote topics are made at once, on a real broker."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import KnownTopic
from mirrorlake.model.flow import SourcePartition
from mirrorlake.sandbox import KafkaCluster
from mirrorlake.topics import RemoteTopics
from tests.builders import mirror_config
from tests.flow.kit import topic_name, wait_until
from tests.unit.topics.test_remote_topics import Written


def test_a_topic_that_the_broker_refuses_is_named_and_the_others_are_made(east: KafkaCluster) -> None:
    admin = ClusterAdmin("c", {"bootstrap.servers": east.bootstrap_servers})
    root, audit = topic_name("many"), Written()
    flow = mirror_config({"source": "a", "target": "c", "topics": f"{root}.*", "policy": "identity"}).flows[0]
    known = {name: KnownTopic(name=name, partitions=2) for name in (f"{root}.{n}" for n in range(300))}
    bad = f"{root}.7"
    known[bad] = KnownTopic(name=bad, configs={"retention.ms": "soon"})
    remotes = RemoteTopics(admin, flow, cast("Any", audit), cast("Any", None))
    with pytest.raises(ClusterError, match=f"create topic {bad}"):
        remotes.ensure([SourcePartition(name, 1, 0) for name in known], known, mirrored_before=())
    # A busy machine may take longer to show so many than those who make them wait.
    wait_until(lambda: admin.describe(known).keys() >= known.keys() - {bad}, "all others are in the metadata")
    there = admin.describe(known)
    assert there.keys() == known.keys() - {bad}
    assert [len(rows) for rows in audit.appends] == [299]
    made = remotes.of(there)
    assert {one.name for one in made.values()} == there.keys()
    known[bad] = KnownTopic(name=bad)
    remotes.ensure([SourcePartition(name, 1, 0) for name in known], known, mirrored_before=())
    assert admin.describe([bad])
    assert [len(rows) for rows in audit.appends] == [299, 1]
