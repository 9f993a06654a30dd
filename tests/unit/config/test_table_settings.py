"""Faults of the settings of typed tables, each with its place."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.errors import ConfigError
from mirrorlake.mirror import from_settings


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"schema": "registry"}, "tables[0].schema: values that are json name no schema of a registry"),
        ({"values": "text", "schema": "n INT"}, "tables[0].schema: values that are text have one column, value"),
        ({"columns": {"_n": "n"}}, "tables[0].columns._n: '_n' is not a column's name"),
        ({"columns": {"n": "n +"}}, "tables[0].columns.n: it is not an expression of Spark SQL"),
        ({"name": "a/b"}, "tables[0].name: 'a/b' is not a table's name"),
    ],
)
def test_a_fault_has_its_place(entry: dict[str, Any], fault: str) -> None:
    settings = {
        "lake": {"root": "lake"},
        "clusters": {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("east", "west")},
        "flows": [{"source": "east", "target": "west", "topics": ".*"}],
        "tables": [{"topics": "sales", **entry}],
    }
    with pytest.raises(ConfigError) as refused:
        from_settings(settings)
    assert fault in str(refused.value)
