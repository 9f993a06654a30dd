"""Typed tables in plan, apply and status of a mirror with real clusters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrorlake.mirror import load
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.records import new_topic


@pytest.mark.law("G")
def test_law_g_apply_puts_the_tables_in_force_that_plan_has_shown(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    topic = new_topic(east, partitions=1, prefix="sales")
    addresses = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    conf = write_conf(tmp_path, addresses, [{"source": "east", "target": "central", "topics": topic}])
    settings = json.loads(conf.read_text())
    settings["tables"] = [{"topics": topic, "name": "sales"}]
    conf.write_text(json.dumps(settings))
    mirror = load(conf)
    planned = {(one.where, one.kind, one.name, one.action) for one in mirror.plan().changes}
    assert ("settings", "table", "sales", "create") in planned
    assert all(one.kind != "table" or one.where == "lake" for one in mirror.plan("east->central").changes)
    mirror.apply()
    assert not mirror.plan()
    # Nothing landed, so no topic of a table is known.
    assert mirror.status().tables == ()
    mirror.land("east", once=True)
    [table] = told("status", "--conf", str(conf))["tables"]
    assert (table["name"], table["state"], table["verdict"], table["offset_lag"]) == ("sales", "new", "OK", 0)
    assert run_cli("status", "--conf", str(conf)).returncode == 0
