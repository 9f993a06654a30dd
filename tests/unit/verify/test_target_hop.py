"""What a target's settings mean for a comparison; no broker."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.verify.target_end import compacting_topics
from tests.kit.memory_cluster import MemoryCluster


@pytest.mark.law("E")
@pytest.mark.parametrize(("brokers", "compacting"), [("compact,delete", {"own", "bare"}), ("delete", {"own"})])
def test_law_e_a_topic_without_a_policy_of_its_own_is_compacted_as_the_brokers_say(
    brokers: str, compacting: set[str]
) -> None:
    cluster: Any = MemoryCluster("west", own=(0, 1), kept=(0, 1), bare=(0, 1))
    cluster.defaults["cleanup.policy"] = brokers
    for name, policy in (("own", "compact"), ("kept", "delete")):
        cluster.topics[name].configs["cleanup.policy"] = policy
    assert compacting_topics(cluster, cluster.topics) == compacting
    cluster.default_cleanup = lambda _: pytest.fail("the brokers are asked only where a topic says nothing")
    assert compacting_topics(cluster, ["own"]) == {"own"}
