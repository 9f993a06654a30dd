"""Names of checks, the page that is made of them, and checks that cannot look."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirrorlake.doctor import Findings, list_checks
from mirrorlake.doctor.findings import Finding
from mirrorlake.errors import UsageError
from tests.docs import DOCS, doctor_page
from tests.kit.commands import run_cli
from tests.unit.doctor.kit import examined

NAMES = [one.name for one in list_checks()]


def test_the_checks_have_stable_names() -> None:
    """Scripts skip and watch for them: one that is renamed keeps nobody's promise."""
    assert len(NAMES) >= 34
    promised = {"kafka.reachable", "kafka.same-cluster", "lake.properties", "lake.whole", "ledger.state", "mm2.beside"}
    promised |= {"spark.version", "java", "disk.free", "source.permissions", "target.permissions"}
    assert promised | {"target.timestamp-type", "target.retention"} <= set(NAMES)
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


def test_findings_come_first_and_what_is_fine_is_a_row_a_check(tmp_path: Path) -> None:
    found = examined(tmp_path, skip=["java", "spark", "disk"])
    text = str(found.in_full().sheet())
    assert text.index("connection refused") < text.index("settings.references")
    assert text.count("settings.references") == 1


def test_a_healthy_mirror_is_fifteen_lines_and_in_full_a_row_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = Findings(
        Finding(check=one.name, layer=one.layer, subject=f"{one.name} of east", detail="as it should be " * 9)
        for one in list_checks()
        for _ in range(1 if one.name == "settings.file" else 4)
    )
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: SimpleNamespace(doctor=lambda **_: healthy))
    monkeypatch.setenv("COLUMNS", "80")
    short, full, document = (run_cli("doctor", "--conf", "m.yml", *more) for more in ((), ("--all",), ("--json",)))
    assert len(short.stdout.splitlines()) <= 15
    assert re.findall(r"^ +✓ (\w+) ", short.stdout, re.MULTILINE) == ["settings", "machine", "cluster", "lake", "flow"]
    assert all(name in full.stdout for name in NAMES)
    assert "target.permissions" not in short.stdout, "a row a layer names three checks"
    assert "settings.file of east: as it should be" in short.stdout
    assert (short.returncode, len(json.loads(document.stdout)["findings"])) == (0, len(healthy))


def test_no_finding_is_summed_up() -> None:
    bad = [
        Finding(check="java", layer="machine", subject=f"m{n}", severity="warning", detail="old", fix=f"next {n}")
        for n in range(30)
    ]
    text = Findings([*bad, Finding(check="disk.free", layer="machine", subject="disk", detail="ok")]).sheet().text()
    assert all(f"next {n}" in text for n in range(30))
