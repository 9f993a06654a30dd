"""What is wrong with the settings of a flow is found without its clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.doctor.kit import bad, settings


@pytest.mark.law("A")
def test_groups_that_cannot_be_kept_in_step(tmp_path: Path) -> None:
    both = {"topics": "orders", "policy": "identity"}
    flows = [{"source": "east", "target": "west", **both}, {"source": "west", "target": "east", **both}]
    assert bad(tmp_path, "groups.held-back", given=settings(flows=flows)) == []
    flows[0]["delivery"] = "at_least_once"
    found = bad(tmp_path, "groups.held-back", given=settings(flows=flows))
    assert "delivers at least once" in dict(found)["east->west"]
