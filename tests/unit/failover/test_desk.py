"""When a source is taken for lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterUnreachable, LoginRefused, MirrorlakeError
from mirrorlake.failover.desk import Desk


def desk(says: MirrorlakeError, *, paused: bool = False) -> Desk:
    def count() -> int:
        raise says

    pause = SimpleNamespace(who="ann") if paused else None
    state = SimpleNamespace(of_cluster=lambda _: pause)
    given: dict[str, Any] = {
        "flow": FlowConfig.model_validate({"source": "east", "target": "central", "topics": "orders"}),
        "clusters": SimpleNamespace(admin=lambda _: SimpleNamespace(broker_count=count)),
        "control": SimpleNamespace(state=lambda: state),
    }
    others = dict.fromkeys(("lake", "journal", "hands", "now", "reader"))
    return Desk(**cast("Any", {**others, **given}), wait=lambda _: None)


def test_a_source_that_refuses_the_login_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrorlake.failover.desk._RESTARTS_WITHIN_S", 0.0)
    assert desk(ClusterUnreachable("connection refused")).why_silent("east") == "connection refused"
    refused = LoginRefused("cluster east: SASL fails", remedy="check sasl.password", alias="east", layer="SASL")
    with pytest.raises(LoginRefused, match="east is not lost, and nothing was done") as said:
        desk(refused).why_silent("east")
    assert "check sasl.password; " in said.value.remedy
    assert "mirrorlake pause --cluster east" in said.value.remedy
    assert "paused by ann" in desk(refused, paused=True).why_silent("east"), "a person has given it up"
