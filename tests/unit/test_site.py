"""The documentation: links, menu, generated pages; and docs/faults.md, which names tests and faults of the chaos that exist."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from itertools import combinations
from pathlib import Path

import pytest

from tests.chaos.faults import KINDS
from tests.chaos.schedule import planned
from tests.docs import DOCS
from tests.site import ROOT, linked, nav, pages

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


@lru_cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = _CODE.sub("", page.read_text())
    headings = [re.sub(r"[`*]|\]\([^)]*\)", "", title).lower() for title in re.findall(r"^#+ (.+)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", pages(), ids=str)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", _CODE.sub("", (ROOT / page).read_text()))
    for target in _LINK.findall(text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (ROOT / page.parent / name) if name else ROOT / page
        assert file.is_file(), f"{page} links {target}"
        assert not anchor or anchor in anchors(file), f"{page} links {target}"


def test_every_page_is_in_the_menu() -> None:
    notebooks = [page for page in linked() if page.suffix == ".ipynb"]
    assert sorted(nav()) == sorted(map(str, [*pages(), *notebooks])), "docs/mkdocs.yml: the menu"


def test_the_site_asks_no_other_host() -> None:
    """Fonts of another host would tell it who reads which page."""
    settings = (DOCS / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "://" not in settings


FAULTS = (ROOT / "docs" / "faults.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", FAULTS)
    assert len(named) > 40
    for path, name in named:
        functions = {
            one.name for one in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(one, ast.FunctionDef)
        }
        assert not name or name in functions, f"{path}::{name}"


def test_every_fault_of_the_chaos_is_on_the_page_and_every_one_of_the_page_exists() -> None:
    [row] = re.findall(r"^Faults by name: (.*)$", FAULTS, re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", row)) == KINDS.keys()
    for words in re.findall(r"chaos ((?:`[a-z-]+`(?:, )?)+)", FAULTS):
        assert set(re.findall(r"`([a-z-]+)`", words)) <= KINDS.keys(), words


def test_every_row_has_a_test_or_a_reason() -> None:
    rows = [line.split("|")[1:-1] for line in FAULTS.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) > 35
    for number, fault, does, shown in rows:
        assert all(map(str.strip, (number, fault, does, shown))), f"{number}: {fault}"


def test_a_schedule_follows_from_its_seed_and_hits_nothing_twice_at_once() -> None:
    long, short = planned(7, 30, KINDS, brokers=3), planned(7, 5, KINDS, brokers=3)
    assert long[: len(short)] == short
    assert planned(8, 5, KINDS, brokers=3) != short
    assert {one.kind for one in planned(7, 600, KINDS, brokers=3)} == KINDS.keys()
    for one, other in combinations(long, 2):
        if KINDS[one.kind].subject == KINDS[other.kind].subject:
            assert one.at_s + one.for_s <= other.at_s, f"{one} and {other}"
    assert not any("leaders" in one.kind for one in planned(7, 600, KINDS, brokers=1))
