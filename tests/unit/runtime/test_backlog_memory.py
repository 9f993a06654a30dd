"""When a live task gives memory back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mirrorlake.runtime import live_tasks


def test_memory_is_given_back_when_a_backlog_is_worked_off_and_once_more_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, released = [100.0], list[float]()
    pool = SimpleNamespace(release_unused=lambda: released.append(clock[0]))
    monkeypatch.setattr(live_tasks, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(live_tasks, "pa", SimpleNamespace(default_memory_pool=lambda: pool))
    memory = live_tasks.BacklogMemory()
    for at, records in [(1, 10), (2, 50_000), (3, 50_000), (4, 0), (5, 0), (12, 10), (13, 0), (20, 0)]:
        clock[0] = at
        memory.record_turn(records)
    assert released == [4, 13]
    for at, records in [(30, 50_000), (31, 5), (32, 50_000), (33, 0), (41, 0), (42, 0), (60, 0)]:
        clock[0] = at
        memory.record_turn(records)
    assert released == [4, 13, 31, 33, 42]
