"""`mirrorlake verify` as scripts see it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirrorlake.errors import StoreError
from mirrorlake.model.verify import VerifyReports
from tests.commands import run_cli


def test_a_report_that_cannot_be_written_is_the_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_: Path) -> None:
        raise StoreError("it cannot be written")

    mirror = SimpleNamespace(
        verify=lambda *_, **__: VerifyReports(),
        proof_report=lambda _: SimpleNamespace(write=write),
    )
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: mirror)
    done = run_cli("verify", "--report", "proof.html", "--json", "--conf", str(tmp_path / "mirror.yml"))
    assert (done.returncode, json.loads(done.stdout)["error"]) == (4, "StoreError")
