"""What a target's settings mean for a comparison; no broker."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.verify.target_end import compacting_topics


class Admin:
    """A cluster by its topics' own settings, and its brokers'."""

    def __init__(self, topics: dict[str, dict[str, str]], brokers: str) -> None:
        self.topics, self.brokers = topics, brokers

    def configs(self, names: Any) -> dict[str, dict[str, str]]:
        return {name: self.topics[name] for name in names}

    def default_cleanup(self, _: Any) -> str:
        if not self.brokers:
            raise ClusterUnreachable("it is away", consequence="", remedy="")
        return self.brokers


@pytest.mark.law("E")
@pytest.mark.parametrize(
    ("brokers", "compacting"),
    [("compact,delete", {"own", "bare"}), ("delete", {"own"})],
)
def test_law_e_a_topic_without_a_policy_of_its_own_is_compacted_as_the_brokers_say(
    brokers: str, compacting: set[str]
) -> None:
    topics = {"own": {"cleanup.policy": "compact"}, "kept": {"cleanup.policy": "delete"}, "bare": {}}
    admin: Any = Admin(topics, brokers)
    assert compacting_topics(admin, topics) == compacting
    asked_for_nothing: Any = Admin({"own": topics["own"]}, "")
    assert compacting_topics(asked_for_nothing, ["own"]) == {"own"}, (
        "the brokers are asked only where a topic says nothing"
    )
