"""Which flows a rebuild pairs: those that make the same of the same source."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.offsets.rebuild import counterparts


def flow(source: str, target: str, **settings: Any) -> FlowConfig:
    return FlowConfig(**{"source": source, "target": target, "topics": "orders", **settings})


def test_flows_into_the_new_target_repeat_those_of_the_same_source() -> None:
    flows = [flow("east", "c1"), flow("west", "c1"), flow("east", "c2", lanes=4), flow("west", "c2", groups="none")]
    found = counterparts(flows, like="c1", target="c2")
    assert {name: other.name for name, other in found.items()} == {"east->c2": "east->c1", "west->c2": "west->c1"}


@pytest.mark.parametrize(
    "other",
    [{"topics": "clicks"}, {"policy": "identity"}, {"placement": {"by": "key", "count": 3}}, {"source": "west"}],
)
def test_a_flow_that_makes_something_else_repeats_nothing(other: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no flow into c2"):
        counterparts([flow("east", "c1"), flow(**{"source": "east", "target": "c2", **other})], like="c1", target="c2")


def test_two_counterparts_are_one_too_many() -> None:
    flows = [flow("east", "c1"), flow("east", "c1", name="again"), flow("east", "c2")]
    with pytest.raises(UsageError, match="could repeat the order of"):
        counterparts(flows, like="c1", target="c2")
