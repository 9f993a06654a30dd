"""`mirrorlake --help`: the commands by purpose, as docs/commands.md has them."""

from __future__ import annotations

import re

import pytest

from tests.commands import run_cli
from tests.docs import DOCS

GROUPS = ["Start", "Watch", "Find", "Recover", "Keep"]


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The lines of each panel of the help, in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    found: dict[str, list[str]] = {}
    for line in run_cli("--help").stdout.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮", line):
            lines = found.setdefault(title[1], [])
        elif line.startswith("│"):
            lines.append(line.strip("│ "))
    return found


def test_the_commands_come_in_five_groups_each_with_a_sentence_of_one_line(panels: dict[str, list[str]]) -> None:
    assert list(panels) == ["Options", *GROUPS]
    for line in (line for group in GROUPS for line in panels[group]):
        assert re.fullmatch(r"[a-z0-9-]+ {2,}[A-Z].*\.", line), f"longer than a line: {line}"


def test_the_page_of_commands_has_the_same_groups(panels: dict[str, list[str]]) -> None:
    page = (DOCS / "commands.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == GROUPS
    for group in GROUPS:
        first_cells = re.findall(r"^\| (`.*?) \| ", sections[group], re.MULTILINE)
        named = {word for cell in first_cells for word in re.findall(r"`([a-z0-9-]+)", cell)}
        wanted = {line.split()[0] for line in panels[group]}
        # `sandbox up`, `down`, `status` name subcommands, too.
        assert wanted <= named, f"{wanted - named} are not in docs/commands.md under {group}"
