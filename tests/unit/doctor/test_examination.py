"""Names of checks, the page that is made of them, what a check that fails leaves to the others, and how findings are shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirrorlake.doctor import Findings, examine, list_checks, machine_checks
from mirrorlake.doctor.examination import Finding
from mirrorlake.errors import ClusterUnreachable, UsageError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.status import FlowStatus, Monitor, PartitionStatus
from tests.docs import DOCS, doctor_page
from tests.kit.commands import run_cli
from tests.unit.doctor.kit import bad, context_of

NAMES = [one.name for one in list_checks()]


def test_names_are_stable_a_beginning_names_several_and_a_typing_error_none() -> None:
    """Scripts skip and watch for them: one that is renamed keeps nobody's promise."""
    promised = {"kafka.reachable", "kafka.same-cluster", "lake.properties", "lake.whole", "ledger.state", "mm2.beside"}
    promised |= {"spark.version", "java", "disk.free", "source.permissions", "target.permissions", "status"}
    assert promised | {"target.timestamp-type", "target.retention"} <= set(NAMES)
    assert len({one.about for one in list_checks()}) == len(NAMES) >= 34
    assert {one.name.split(".")[0] for one in list_checks(only=["kafka", "java"])} == {"kafka", "java"}
    assert "java" not in {one.name for one in list_checks(skip=["java"])}
    with pytest.raises(UsageError, match=r"no check is called 'ledger\.stat'") as refused:
        list_checks(only=["ledger.stat"])
    assert "ledger.state" in refused.value.remedy


def test_the_list_asks_nobody_and_needs_no_settings_and_the_page_is_in_step_with_it(tmp_path: Path) -> None:
    done = run_cli("doctor", "--list", "--json", "--only", "ledger", "--conf", str(tmp_path / "none.yml"))
    assert (done.returncode, done.stderr) == (0, "")
    listed = json.loads(done.stdout)["checks"]
    assert [one["name"] for one in listed] == [name for name in NAMES if name.startswith("ledger.")]
    assert listed[0].keys() == {"name", "layer", "finds", "about", "fix", "docs"}
    assert listed[0]["docs"] == "docs/doctor.md#ledgersettings"
    assert (DOCS / "doctor.md").read_text() == doctor_page(), "docs/doctor.md is out of date; next: make docs"


def test_a_check_that_fails_stops_no_other_and_a_cluster_that_is_away_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def broker_count(admin: ClusterAdmin) -> int:
        asked.append(admin.alias)
        raise ClusterUnreachable(f"{admin.alias} is away", consequence="", remedy=f"start {admin.alias}")

    def find_java() -> None:
        raise ValueError("an odd machine\nat line 7")

    monkeypatch.setattr(ClusterAdmin, "broker_count", broker_count)
    monkeypatch.setattr(machine_checks, "find_java", find_java)
    found = examine(context_of(tmp_path), skip=["spark", "disk"])
    assert [(one.check, one.subject, one.detail) for one in found.bad] == [
        ("java", "machine", "it cannot be looked at: an odd machine"),
        ("kafka.reachable", "east", "east is away"),
        ("kafka.reachable", "west", "west is away"),
    ]
    assert asked == ["east", "west"], "a cluster that is away costs one time-out, not one a check"
    assert {one.layer for one in found if one.ok} == {"settings", "machine", "lake", "flow"}
    for only in (["ledger", "status"], ["target.retention"]):
        found = examine(context_of(tmp_path), only=only)
        assert [one.check for one in found] == ["kafka.reachable"] * 2, "what could not be looked at does not seem fine"


def test_a_flow_that_does_not_keep_up_is_a_finding_with_the_words_of_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(verdict: str) -> list[str]:
        positions = {"source_end": 9, "landed": 9, "republished": 5, "offset_lag": 4, "time_lag_ms": 1200}
        row = PartitionStatus(topic="orders", partition=0, verdict=verdict, state="behind", reason="why", **positions)
        flow = FlowStatus(flow="east->west", partitions=(row,), observed_at=None)
        monkeypatch.setattr(Monitor, "status", lambda *_: {"east->west": flow})
        return [" ".join(one) for one in bad(tmp_path, "status") if one[1] == "east->west"]

    monkeypatch.setattr(ClusterAdmin, "broker_count", lambda _: 1)
    assert [found(one) for one in ("OK", "PAUSED", "WARMING_UP", "UNKNOWN")] == [[]] * 4
    assert found("WARNING") == ["warning east->west WARNING: why"]
    assert [found(one)[0].split()[0] for one in ("STALL", "STOP", "REWIND")] == ["failure"] * 3


def test_what_is_fine_is_a_line_a_layer_and_no_finding_is_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    note = Finding(check="settings.file", layer="settings", subject="m.yml", detail="2 flows")
    fine = [note, *(Finding(check=one.name, layer=one.layer, subject=s) for one in list_checks() for s in "abcd")]
    doctor = SimpleNamespace(doctor=lambda **_: Findings(fine))
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: doctor)
    monkeypatch.setenv("COLUMNS", "80")
    text, document = (run_cli("doctor", "--conf", "m.yml", *more) for more in ((), ("--json",)))
    assert len(text.stdout.splitlines()) <= 15
    assert re.findall(r"^ +✓ (\w+) ", text.stdout, re.MULTILINE) == ["settings", "machine", "cluster", "lake", "flow"]
    assert "m.yml: 2 flows" in text.stdout, "the wrong settings file looks healthy, too"
    assert (text.returncode, len(json.loads(document.stdout)["findings"])) == (0, len(fine))
    old = {"check": "java", "layer": "machine", "severity": "warning", "detail": "old"}
    shown = Findings([*(Finding(subject=f"m{n}", fix=f"next {n}", **old) for n in range(30)), *fine]).sheet().text()
    assert all(f"next {n}" in shown for n in range(30))
    assert shown.index("next 29") < shown.index("kafka.reachable")
