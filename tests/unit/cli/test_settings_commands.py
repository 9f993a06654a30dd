"""`mirrorlake apply` as people see it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirrorlake.model.plan import Change, Note, Plan
from tests.commands import run_cli

CREATED = Change(where="west", kind="topic", name="orders", action="create", after={"partitions": 3}, reason="missing")
HELD = Change(where="west", kind="topic", name="payments", action="held", reason="it was deleted")
LEFT = Note(where="west", kind="acl", name="User:app", reason="its host differs")


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    plan = Plan((CREATED, HELD), (LEFT,))
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: SimpleNamespace(apply=lambda _: plan))
    return "--conf", str(tmp_path / "mirror.yml")


def test_apply_counts_what_it_did_and_shows_only_what_waits_for_a_choice(conf: tuple[str, str]) -> None:
    said = run_cli("apply", *conf).stdout
    assert said.splitlines()[-1] == "1 change applied: 1 topic"
    assert "payments" in said
    assert "it was deleted" in said
    assert "orders" not in said, "the plan has shown it"
    assert "User:app" not in said


def test_the_document_of_apply_has_the_whole_plan(conf: tuple[str, str]) -> None:
    document = json.loads(run_cli("apply", "--json", *conf).stdout)
    assert [one["name"] for one in document["changes"]] == ["orders", "payments"]
    assert (len(document["notes"]), document["applied"]) == (1, True)


def test_an_apply_of_nothing_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: SimpleNamespace(apply=lambda _: Plan()))
    assert run_cli("apply", "--conf", str(tmp_path / "mirror.yml")).stdout == "nothing to apply\n"
