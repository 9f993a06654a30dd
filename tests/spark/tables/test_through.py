"""Rules of a flow before a typed table: what they hide or withhold stays out of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.errors import ConfigError
from mirrorlake.mirror import Mirror, from_settings
from tests.spark.tables.kit import Make, Regions, bad, rows

RULES = [{"name": "small", "keep": "value.amount > 10"}, {"name": "private", "remove": "email"}]


def mirror_of(folder: Path, spark: SparkSession | None = None, **table: Any) -> Mirror:
    clusters = {alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("east", "west", "central")}
    flows = [{"source": alias, "target": "central", "topics": ".*", "rules": RULES} for alias in ("east", "west")]
    tables = [{"topics": "sales", **table}]
    return from_settings(
        {"lake": {"root": str(folder)}, "clusters": clusters, "flows": flows, "tables": tables}, spark=spark
    )


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_rules_hide_or_withhold_is_in_no_row_and_in_no_bad_record(
    make: Make, spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    make()
    through = ["east->central", "west->central"]
    mirror = mirror_of(tmp_path / "lake", spark, through=through, mode=mode)
    regions = Regions(mirror)
    secret = {"amount": 11, "email": "ann@example.com"}
    regions.land("east", "sales", ("a", secret), ("b", {**secret, "amount": 5}), ("c", b'{"email": "ann@'))
    regions.land("west", "sales", ("a", {**secret, "amount": 12}))
    for _ in range(2):
        mirror.keep_tables(once=True)
    regions.land(
        "west", "sales", ("d", {**secret, "amount": 1}), ("e", {**secret, "amount": 13}), ("f", b"ann@example.com")
    )
    [done] = mirror.keep_tables(once=True)
    assert (done.records, done.bad) == (3, 1)
    assert mirror.lake.typed("sales").columns[-1] == "amount"
    assert rows(mirror, "sales", "_source", "_offset", "amount") == [("east", 0, 11), ("west", 0, 12), ("west", 2, 13)]
    assert [(source, offset) for _, source, offset, _ in bad(mirror)] == [("east", 2), ("west", 3)]
    assert all("the rule small cannot judge it" in reason for *_, reason in bad(mirror))
    held = mirror.lake.query_rows("SELECT key, value FROM {bad_records}")
    assert [(row.key, row.value) for row in held] == [(None, None)] * 2
    assert [one.offset_lag for one in mirror.tables().tables] == [0]
    files = [file.read_bytes() for file in (tmp_path / "lake" / "tables").rglob("*") if file.is_file()]
    assert not any(b"ann@" in content for content in files)


def test_a_source_that_would_pass_without_rules_is_a_fault_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        mirror_of(tmp_path, through="east->central")
    assert "tables[0].through: records of west would be rows without rules" in str(caught.value)
    with pytest.raises(ConfigError, match="there is no flow 'east->west'"):
        mirror_of(tmp_path, through="east->west")
    assert mirror_of(tmp_path, through="east->central", sources="east").config.tables[0].through == ("east->central",)
    avro = mirror_of(tmp_path, schema="registry", values="avro", registry={"url": "http://localhost:1"}).config.tables[
        0
    ]
    assert json.loads(avro.model_dump_json())["values"] == "avro"
    with pytest.raises(ConfigError, match="values that are json name no schema of a registry"):
        mirror_of(tmp_path, schema="registry")
