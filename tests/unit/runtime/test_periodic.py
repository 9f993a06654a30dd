"""Duties: what a flow does beside its records, and what their failures mean."""

import logging
import threading

import pytest

from mirrorlake.errors import ClusterUnreachable, LoginRefused
from mirrorlake.runtime import PeriodicTask, PeriodicTasks

REFUSED = LoginRefused("west refuses the login", consequence="", remedy="", alias="west")
AWAY = ClusterUnreachable("west is away", consequence="", remedy="", alias="west")


def failing() -> None:
    raise AWAY


def test_each_duty_is_done_and_the_first_failure_is_the_steps() -> None:
    done: list[str] = []
    duties = [
        PeriodicTask(name="groups", interval_s=1, run=failing),
        PeriodicTask(name="acls", interval_s=1, run=lambda: done.append("acls")),
    ]
    with pytest.raises(ClusterUnreachable, match="west is away"):
        PeriodicTasks("a->b", duties).run_all()
    assert done == ["acls"], "one duty that fails keeps no other from being done"


@pytest.mark.parametrize(
    ("error", "level"), [(AWAY, logging.INFO), (REFUSED, logging.WARNING), (ZeroDivisionError(), logging.ERROR)]
)
def test_a_duty_that_fails_is_tried_again_and_said_once_to_a_person_unless_its_cluster_is_away(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    thrice, turns = threading.Event(), []

    def count() -> None:
        turns.append(1)
        if len(turns) == 3:
            thrice.set()
        raise error

    duties = PeriodicTasks("a->b", [PeriodicTask(name="groups", interval_s=0.01, run=count)])
    duties.start()
    assert thrice.wait(30)
    duties.stop()
    said = [record.levelno for record in caplog.records if "duty=groups" in record.getMessage()]
    assert said == [level] or (level == logging.ERROR and {*said} == {level}), "what nobody foresaw is said each time"
