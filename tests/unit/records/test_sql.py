"""Views of the relay: names and quotes, and parameters of notebooks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell

import mirrorlake as ml
from mirrorlake.errors import UsageError
from mirrorlake.lake import quote
from mirrorlake.notebook.params import read
from mirrorlake.records.sql import view_name


@given(st.text(min_size=1))
def test_a_view_name_needs_no_quotes(topic: str) -> None:
    assert view_name(topic).isidentifier()


@given(st.text())
def test_a_literal_ends_where_it_should(text: str) -> None:
    inside = quote(text)[1:-1].replace("\\\\", "").replace("\\'", "")
    assert "'" not in inside
    assert not inside.endswith("\\")


def test_widgets_are_read_with_the_types_of_the_defaults() -> None:
    found = read({"n": 1, "r": 1.5, "t": "x", "b": False}, {"n": "7", "r": "2", "t": "", "b": "Yes"})
    assert found == {"n": 7, "r": 2.0, "t": "", "b": True}
    with pytest.raises(UsageError, match="n='seven' is not of type int; b='perhaps' is not of type bool"):
        read({"n": 1, "b": True}, {"n": "seven", "b": "perhaps"})


class Widgets:
    """Databricks' widgets, with what a job gave."""

    def __init__(self, **given: str) -> None:
        self.values = given

    def text(self, name: str, default: str) -> None:
        self.values.setdefault(name, default)

    def get(self, name: str) -> str:
        return self.values[name]


@pytest.fixture
def shell() -> Any:
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_a_databricks_job_gives_its_parameters_to_the_notebook(shell: InteractiveShell) -> None:
    shell.user_ns["dbutils"] = SimpleNamespace(widgets=Widgets(records="5"))
    assert ml.params(records=300, conf="") == SimpleNamespace(records=5, conf="")
    del shell.user_ns["dbutils"]
    assert ml.params(records=300) == SimpleNamespace(records=300)


def test_a_flow_of_a_place_is_written_with_an_arrow() -> None:
    with pytest.raises(UsageError, match="'east' names no source and target; nothing was started"):
        ml.sandbox.Place(["east"])
