"""What a drain does with its flows once its sources are landed; streams that only note that they ran."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mirrorlake.errors import LanderReplaced, SourceGap
from mirrorlake.lake.landing_commits import lander_replaced_error
from mirrorlake.mirror import runner
from mirrorlake.mirror.results import LandResult, RepublishResult
from mirrorlake.mirror.runner import Runner
from mirrorlake.model.control import NOTHING_ASKED
from mirrorlake.progress import ignore_progress
from tests.builders import mirror_config


class Ran:
    """The streams of a mirror: landing fails as it is told, and flows are noted."""

    def __init__(self, **failures: Exception) -> None:
        self.failures = failures
        self.sent: set[str] = set()

    def land(self, source: str, *_: Any, **__: Any) -> LandResult:
        if source in self.failures:
            raise self.failures[source]
        return LandResult(source, 1)

    def republish(self, flow: Any, *_: Any, **__: Any) -> RepublishResult:
        self.sent.add(flow.source)
        return RepublishResult(flow.name, 1)


class Nobody:
    """What a drain asks besides its streams."""

    tell = staticmethod(ignore_progress)

    def control(self) -> Nobody:
        return self

    def state(self) -> Any:
        return NOTHING_ASKED

    def update(self, *_: Any) -> None:
        pass

    def tick(self) -> None:
        pass


@pytest.mark.parametrize(
    ("failure", "sent"),
    [(lander_replaced_error("east"), {"west"}), (SourceGap("records left east", alias="east"), {"east", "west"})],
)
def test_a_drain_whose_source_was_taken_over_does_not_take_the_flow_from_the_one_that_did(
    failure: Exception, sent: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody: Any = Nobody()
    monkeypatch.setattr(runner, "Notices", lambda _: nobody)
    streams: Any = Ran(east=failure)
    flows = mirror_config({"target": "central"}, {"source": "west", "target": "central"}).flows
    run = Runner(nobody, streams)
    with pytest.raises(type(failure)):
        run._drain(["east", "west"], flows, threading.Event(), nobody)
    assert streams.sent == sent
    assert isinstance(failure, LanderReplaced) == (sent == {"west"})
