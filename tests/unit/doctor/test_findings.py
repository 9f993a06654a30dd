"""Names of checks, the page that is made of them, and checks that cannot look."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mirrorlake.doctor import list_checks
from mirrorlake.errors import UsageError
from tests.commands import run_cli
from tests.docs import DOCS, doctor_page
from tests.unit.doctor.kit import examined

NAMES = [one.name for one in list_checks()]


def test_the_checks_have_stable_names() -> None:
    """Scripts skip and watch for them: one that is renamed keeps nobody's promise."""
    assert len(NAMES) >= 50
    promised = {
        "kafka.reachable",
        "source.retention",
        "target.max-message-bytes",
        "lake.log-files",
        "ledger.replication",
    }
    promised |= {"spark.version", "java", "disk.free", "clock.skew", "transactions.open", "groups.live-on-target"}
    assert promised | {"settings.secrets-plain"} <= set(NAMES)
    assert max(Counter(one.about for one in list_checks()).values()) == 1


def test_a_beginning_names_several_checks_and_a_typing_error_none() -> None:
    assert {one.name.split(".")[0] for one in list_checks(only=["kafka", "java"])} == {"kafka", "java"}
    assert "java" not in {one.name for one in list_checks(skip=["java"])}
    with pytest.raises(UsageError, match=r"no check is called 'ledger\.stat'") as refused:
        list_checks(only=["ledger.stat"])
    assert "ledger.state" in refused.value.remedy


def test_the_list_asks_nobody_and_needs_no_settings(tmp_path: Path) -> None:
    done = run_cli("doctor", "--list", "--json", "--only", "ledger", "--conf", str(tmp_path / "none.yml"))
    assert (done.returncode, done.stderr) == (0, "")
    assert [one["name"] for one in json.loads(done.stdout)["checks"]] == [n for n in NAMES if n.startswith("ledger.")]
    assert json.loads(done.stdout)["checks"][0]["docs"] == "docs/doctor.md#ledgersettings"


def test_the_page_of_checks_is_in_step_with_them() -> None:
    assert (DOCS / "doctor.md").read_text() == doctor_page(), "docs/doctor.md is out of date; next: make docs"


def test_a_cluster_that_is_away_is_one_finding_and_what_hangs_on_it_is_left_out(tmp_path: Path) -> None:
    found = examined(tmp_path, skip=["java", "spark", "disk", "memory", "limits"])
    assert {(one.check, one.subject) for one in found.bad} == {("kafka.reachable", "east"), ("kafka.reachable", "west")}
    assert {"settings.file", "lake.tables", "flow.paused"} <= {one.check for one in found}
    assert not [one for one in found if one.check.startswith(("source", "target", "ledger"))]
    assert all(one.fix for one in found.bad)


def test_findings_come_first_and_what_is_fine_is_a_row_a_check(tmp_path: Path) -> None:
    text = str(examined(tmp_path, only=["kafka", "settings"]).sheet())
    assert text.index("connection refused") < text.index("settings.file-mode")
    assert text.count("settings.references") == 1
