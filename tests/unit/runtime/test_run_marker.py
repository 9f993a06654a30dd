"""What tells long-lived tasks to go on: an owner ends those before it, and never those after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.runtime import RunMarker


@pytest.mark.law("F")
def test_law_f_an_owner_ends_the_tasks_of_owners_before_it_only(tmp_path: Path) -> None:
    first, second, again = (
        RunMarker(tmp_path / "live", 9),
        RunMarker(tmp_path / "live", 10),
        RunMarker(tmp_path / "live", 10),
    )
    assert not first.exists()
    first.create()
    assert first.exists()
    second.create()
    assert (first.exists(), second.exists()) == (False, True), "the newer owner has ended the older one's"
    first.create()
    assert second.exists(), "an owner that wakes leaves those after it alone"
    again.create()
    assert (second.exists(), again.exists()) == (False, True), "the next tasks of one owner end those before them"
    again.remove()
    again.remove()
    assert not again.exists()
