"""What tells long-lived tasks to go on: an owner ends those before it, and never those after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.runtime import GoesOn


@pytest.mark.law("F")
def test_law_f_an_owner_ends_the_tasks_of_owners_before_it_only(tmp_path: Path) -> None:
    first, second, again = GoesOn(tmp_path / "live", 9), GoesOn(tmp_path / "live", 10), GoesOn(tmp_path / "live", 10)
    assert not first()
    first.begin()
    assert first()
    second.begin()
    assert (first(), second()) == (False, True), "the newer owner has ended the older one's"
    first.begin()
    assert second(), "an owner that wakes leaves those after it alone"
    again.begin()
    assert (second(), again()) == (False, True), "the next tasks of one owner end those before them"
    again.end()
    again.end()
    assert not again()
