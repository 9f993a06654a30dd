"""What commands print, as people and scripts see it."""

from __future__ import annotations

import json
import re
import socket
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirrorlake.cli.commands.console import page_link
from mirrorlake.errors import StoreError
from mirrorlake.lake.samples import PositionKey, SubjectSample
from mirrorlake.model.plan import Change, Note, Plan
from mirrorlake.model.verify import VerifyReports
from mirrorlake.status import PositionSnapshot
from tests.builders import NOON, hop_place, judged, sample
from tests.docs import DOCS
from tests.kit.commands import run_cli

CREATED = Change(where="west", kind="topic", name="orders", action="create", after={"partitions": 3}, reason="missing")
HELD = Change(where="west", kind="topic", name="payments", action="held", reason="it was deleted")
LEFT = Note(where="west", kind="acl", name="User:app", reason="its host differs")
GROUPS = ["Start", "Watch", "Find", "Recover", "Keep"]


def test_lag_prints_a_page_or_every_position_and_its_document_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands = [sample(NOON + timedelta(minutes=minute), 7, 9, waiting=NOON, lag_ms=0) for minute in range(3)]
    topics = [(f"t{n:02}", partition) for n in range(40) for partition in range(2)]
    windows = {hop_place("republished", topic=topic, partition=partition): stands for topic, partition in topics}
    lag = SimpleNamespace(verdict=lambda: judged(windows))
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: SimpleNamespace(lag=lag))
    conf = ("--conf", str(tmp_path / "mirror.yml"))
    page, full, told = (run_cli("lag", *conf, *more) for more in ((), ("--by", "partition", "--wide"), ("--json",)))
    assert {page.returncode, full.returncode, told.returncode} == {1}, "a finding"
    assert "… and 16 more rows of 40" in page.stdout
    assert sum("republished" in line for line in full.stdout.splitlines()) == 80
    assert re.search(r"t39-1 +republished +✗ STALL +7 +9 +2 +2 min 0 s +never", full.stdout)
    document = json.loads(told.stdout)
    [first, *_] = document["lag"]
    assert (document["verdict"], len(document["lag"]), first["eta_ms"]) == ("STALL", 80, None)
    assert first["observed_at"] == "2026-01-01T12:02:00+00:00"


def test_a_sample_tells_who_did_not_answer_and_prints_no_position() -> None:
    key = PositionKey("east", None, "orders", 1, 0, "last_stable", None)
    sample = PositionSnapshot(
        observed_at=NOON,
        looks=(
            SubjectSample(subject="cluster", name="east", positions={key: 5}, rows={key: 5}, complete=True, changed=1),
            SubjectSample(subject="cluster", name="west", error="cluster west is not reachable"),
        ),
    )
    assert str(sample) == "positions: 1 seen, 1 changed\ncluster west: cluster west is not reachable"
    assert "orders" not in repr(sample), "a notebook would print thousands"


def test_apply_counts_what_it_did_and_shows_only_what_waits_for_a_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan((CREATED, HELD), (LEFT,))
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: SimpleNamespace(apply=lambda _: plan))
    command = ("apply", "--conf", str(tmp_path / "mirror.yml"))
    said = run_cli(*command).stdout
    assert said.splitlines()[-1] == "1 change applied: 1 topic"
    assert "payments" in said
    assert "it was deleted" in said
    assert "orders" not in said, "the plan has shown it"
    assert "User:app" not in said
    document = json.loads(run_cli(*command, "--json").stdout)
    assert [one["name"] for one in document["changes"]] == ["orders", "payments"]
    assert (len(document["notes"]), document["applied"]) == (1, True)
    plan = Plan()
    assert run_cli(*command).stdout == "nothing to apply\n"


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


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "[::1]"),
        ("0.0.0.0", "here"),  # noqa: S104  what a person may write
        ("::", "here"),
    ],
)
def test_a_link_names_a_host_that_a_browser_understands(host: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    assert page_link(host, 8866, "t0ken") == f"http://{shown}:8866/?token=t0ken"


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The lines of each panel of the help, in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    found: dict[str, list[str]] = {}
    for line in run_cli("--help").stdout.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮", line):
            lines = found.setdefault(title[1], [])
        elif line.startswith("│"):
            lines.append(line.strip("│ "))
    return found


def test_the_commands_come_in_five_groups_each_with_a_sentence_of_one_line_as_on_their_page(
    panels: dict[str, list[str]],
) -> None:
    assert list(panels) == ["Options", *GROUPS]
    for line in (line for group in GROUPS for line in panels[group]):
        assert re.fullmatch(r"[a-z0-9-]+ {2,}[A-Z].*\.", line), f"longer than a line: {line}"
    page = (DOCS / "commands.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == GROUPS
    for group in GROUPS:
        first_cells = re.findall(r"^\| (`.*?) \| ", sections[group], re.MULTILINE)
        named = {word for cell in first_cells for word in re.findall(r"`([a-z0-9-]+)", cell)}
        wanted = {line.split()[0] for line in panels[group]}
        # `sandbox up`, `down`, `status` name subcommands, too.
        assert wanted <= named, f"{wanted - named} are not in docs/commands.md under {group}"
