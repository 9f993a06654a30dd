"""docs/faults.md names tests, and each of them exists; the schedule of the chaos is a function of its seed."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

from tests.chaos.faults import KINDS
from tests.chaos.schedule import planned

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "faults.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", _PAGE)
    assert len(named) > 40
    for path, name in named:
        functions = {
            one.name for one in ast.walk(ast.parse((_ROOT / path).read_text())) if isinstance(one, ast.FunctionDef)
        }
        assert not name or name in functions, f"{path}::{name}"


def test_every_fault_of_the_chaos_is_on_the_page_and_every_one_of_the_page_exists() -> None:
    [row] = re.findall(r"^Faults by name: (.*)$", _PAGE, re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", row)) == KINDS.keys()
    for words in re.findall(r"chaos ((?:`[a-z-]+`(?:, )?)+)", _PAGE):
        assert set(re.findall(r"`([a-z-]+)`", words)) <= KINDS.keys(), words


def test_every_row_has_a_test_or_a_reason() -> None:
    rows = [line.split("|")[1:-1] for line in _PAGE.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) > 35
    for number, fault, does, shown in rows:
        assert number.strip()
        assert fault.strip()
        assert does.strip()
        assert shown.strip(), f"{number}: {fault}"


def test_a_schedule_follows_from_its_seed_and_hits_nothing_twice_at_once() -> None:
    long, short = planned(7, 30, KINDS, brokers=3), planned(7, 5, KINDS, brokers=3)
    assert long[: len(short)] == short
    assert planned(8, 5, KINDS, brokers=3) != short
    assert {one.kind for one in planned(7, 600, KINDS, brokers=3)} == KINDS.keys()
    for one, other in combinations(long, 2):
        if KINDS[one.kind].subject == KINDS[other.kind].subject:
            assert one.at_s + one.for_s <= other.at_s, f"{one} and {other}"
    assert not any("leaders" in one.kind for one in planned(7, 600, KINDS, brokers=1))
