"""What commands print, as people and scripts see it."""

from __future__ import annotations

import json
import re
import socket
from datetime import timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.cli.commands.console import page_link
from mirrorlake.errors import StoreError
from mirrorlake.lake.samples import PositionKey, SubjectSample
from mirrorlake.model.plan import Change, Note, Plan
from mirrorlake.model.verify import VerifyReports
from mirrorlake.status import LagPage, PositionSnapshot
from tests.builders import NOON
from tests.docs import DOCS
from tests.kit.commands import run_cli

CREATED = Change(where="west", kind="topic", name="orders", action="create", after={"partitions": 3}, reason="missing")
HELD = Change(where="west", kind="topic", name="payments", action="held", reason="it was deleted")
LEFT = Note(where="west", kind="acl", name="User:app", reason="its host differs")
GROUPS = ["Start", "Watch", "Find", "Recover", "Keep"]


def row(minutes: int, lag_ms: int | None, **other: Any) -> Any:
    place = {"flow": "east->central", "topic": "orders", "generation": 1, "partition": 0, "cluster": "east"}
    hop = {"hop": "landed", "group_id": None, "observed_at": NOON + timedelta(minutes=minutes), "position": minutes}
    lags = {"end_position": 9, "offset_lag": 9 - minutes, "time_lag_ms": lag_ms}
    return SimpleNamespace(**{**place, **hop, **lags, **other})


def test_many_partitions_are_one_page_with_the_longest_waiting_topic_first() -> None:
    hops = [("landed", None), ("republished", None), ("consumed", "billing")]
    rows = [
        row(1, 0, topic=topic, partition=n, hop=hop, group_id=group, offset_lag=0)
        for topic in ("orders", "payments")
        for n in range(16)
        for hop, group in hops
    ]
    [late] = [one for one in rows if (one.topic, one.partition, one.hop) == ("payments", 7, "republished")]
    late.offset_lag, late.time_lag_ms = 8, 156_000
    shown = LagPage(rows).sheet().text(rows=None, width=80)
    title, _, first, *others = shown.splitlines()
    assert title == "lag: 96 positions"
    assert first.split() == ["payments", "landed", "16", "0", "0", "ms"]
    assert others[0].split() == ["payments", "republished", "16", "8", "2", "min", "36", "s"]
    assert others[1].split() == ["payments", "consumed", "by", "billing", "on", "east", "16", "0", "0", "ms"]
    assert len(others) == 5
    assert len(LagPage(rows, by="partition").sheet().text(rows=None, width=99).splitlines()) == 98


def test_over_time_a_position_shows_its_newest_lag_and_its_longest() -> None:
    rows = [row(2, 20), row(1, 90_000), row(3, 10), row(1, None, generation=2)]
    text = LagPage(rows, by="partition").sheet().text(rows=None, width=200)
    _, heads, first, second, note = text.splitlines()
    assert heads.split() == ["partition", "hop", "position", "end", "offset", "lag", "time", "lag", "at", "most"]
    assert first.split() == ["orders-0", "landed", "3", "9", "6", "10", "ms", "1", "min", "30", "s"]
    assert second.split() == ["orders~2-0", "landed", "1", "9", "8", "–", "–"]
    assert note.strip().startswith("–: not known")
    assert str(LagPage([])).startswith("lag: no position is known yet; next: mirrorlake run")


def test_the_command_prints_a_page_or_every_position_and_its_document_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    rows = [row(1, 1_500, topic=f"t{n}", observed_at=elsewhere) for n in range(60)]
    none = SimpleNamespace(tables=())
    mirror = SimpleNamespace(lag=SimpleNamespace(rows=lambda _: rows), tables=lambda: none)
    monkeypatch.setattr("mirrorlake.mirror.load", lambda *_, **__: mirror)
    conf = ("--conf", str(tmp_path / "mirror.yml"))
    page, full, document = (run_cli("lag", *conf, *more) for more in ((), ("--by", "partition"), ("--json",)))
    assert len(page.stdout.splitlines()) <= 36
    assert "… and 36 more rows of 60" in page.stdout
    assert sum("landed" in line for line in full.stdout.splitlines()) == 60
    told = {(one["time_lag_ms"], one["observed_at"]) for one in json.loads(document.stdout)["lag"]}
    assert told == {(1_500, "2026-01-01T12:00:00Z")}, "times in JSON are UTC"


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
