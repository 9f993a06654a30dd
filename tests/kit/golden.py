"""Texts that are kept beside their tests: `pytest --update` writes them anew, and their difference is read before it is committed.

For wording and shape, never for a law.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the kept texts anew where they differ")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with the one that is kept under a name in `golden/`, beside the test's file."""

    def compare(name: str, text: str) -> None:
        kept = Path(request.path.parent, "golden", name)
        if request.config.getoption("--update"):
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(text, encoding="utf-8")
        assert kept.exists(), f"{kept} is not kept yet. Next: run this test with --update, and read what it wrote"
        assert text == kept.read_text(encoding="utf-8")

    return compare
