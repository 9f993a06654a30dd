"""The documentation: every link leads somewhere, every page is in the menu, and generated pages are in step."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

from tests.docs import DOCS, decisions_page
from tests.site import ROOT, nav, pages

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
RECORDS = Path("docs/decisions")


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


def test_every_page_is_in_the_menu_and_every_record_in_the_list() -> None:
    listed = [page for page in pages() if page.parent != RECORDS or page.name == "README.md"]
    assert sorted(nav()) == sorted(map(str, listed)), "docs/mkdocs.yml: the menu"
    assert (DOCS / "decisions" / "README.md").read_text() == decisions_page(), "next: make docs"


def test_the_site_asks_no_other_host() -> None:
    """Fonts of another host would tell it who reads which page."""
    settings = (DOCS / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "://" not in settings
