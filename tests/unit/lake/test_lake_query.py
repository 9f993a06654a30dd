"""The texts of questions, as both engines can answer them."""

from __future__ import annotations

from pathlib import Path

import mirrorlake


def test_no_window_reaches_to_the_end_of_its_partition() -> None:
    files = Path(mirrorlake.__file__).parent.rglob("*.py")
    found = [file.name for file in files if "UNBOUNDED FOLLOWING" in file.read_text()]
    assert found == [], "Spark goes through what follows again at every row: order it downwards, or ask for `lead`"
