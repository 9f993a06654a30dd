"""The pages that are made from code say what the code says."""

from tests.docs import DOCS, tables_page


def test_the_page_of_tables_is_in_step_with_the_schemas() -> None:
    assert (DOCS / "tables.md").read_text() == tables_page(), "docs/tables.md is out of date; next: make docs"
