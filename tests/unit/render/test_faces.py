"""What values show in a notebook and in a terminal: the verdict first, nothing foreign, no secret, no query and no call."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

import mirrorlake
import mirrorlake as ml
from mirrorlake.config.loading import loads
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.offset_map import NoRecord
from mirrorlake.model.plan import Change, Plan
from mirrorlake.model.verify import VerifyReport, VerifyReports
from mirrorlake.render import Displayable, clean
from mirrorlake.status.status import Status
from mirrorlake.verify import ProofReport
from tests.unit.markup import ATTACKS, Markup, unwrapped
from tests.unit.values import NOON, every, group_position, partition_status, report, status

SECRET = "hunter2"  # noqa: S105
SETTINGS = f"""
lake: {{root: "s3a://key:{SECRET}@bucket/lake?sig={SECRET}"}}
clusters:
  east:
    bootstrap_servers: "127.0.0.1:1"
    client: {{sasl.password: {SECRET}, sasl.mechanism: PLAIN, sasl.username: me, security.protocol: SASL_SSL}}
  central: {{bootstrap_servers: "${{env:NOBODY:-127.0.0.1:2}}"}}
flows:
  - source: east
    target: central
    topics: "orders, clicks.*"
    lanes: 4
    producer: {{linger.ms: 5, batch.size: 1000}}
    rules: [{{name: mask, hash: {{fields: ssn, key: {SECRET}}}}}]
"""


class Untouchable:
    """A Spark session that nobody may use."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"law of faces: a repr asked Spark for {name}")


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> ml.Mirror:
    made = ml.Mirror(loads(SETTINGS), spark=Untouchable())  # type: ignore[arg-type]

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("law of faces: a repr asked a cluster")

    monkeypatch.setattr("confluent_kafka.admin.AdminClient.__init__", refuse)
    monkeypatch.setattr("mirrorlake.context.context.Context.ledger", refuse)
    return made


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    quiet = Config()
    quiet.HistoryManager.enabled = False
    try:
        yield InteractiveShell.instance(config=quiet)
    finally:
        InteractiveShell.clear_instance()


def faces(value: Displayable) -> list[str]:
    return [value._repr_html_(), str(value), repr(value), value.to_html(rows=None), value.to_text(rows=None)]


def test_every_kind_of_value_that_shows_itself_is_tried_here() -> None:
    for module in pkgutil.walk_packages(mirrorlake.__path__, "mirrorlake."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def kinds(above: type) -> set[type]:
        found = above.__subclasses__()
        return {*found, *(each for one in found for each in kinds(one))}

    own = {kind for kind in kinds(Displayable) if kind.__module__.startswith("mirrorlake.")}
    # `slots=True` makes a class anew, and the first one lives on until it is collected.
    facade = {"Mirror", *(kind.__name__ for kind in ml.Mirror.__mro__), "FlowHandle"}
    names = {kind.__name__ for kind in own} - {"JsonDisplayable", "Planned"} - facade
    assert names == {type(value).__name__ for value in every("x")}


@settings(max_examples=40)
@given(st.text() | st.text(alphabet="<>\"'&;=/!-x \n\x1b\u202e"))
def test_nothing_that_others_wrote_gets_out_of_a_value(text: str) -> None:
    for value in every(text):
        html = Markup(value._repr_html_())
        assert html.foreign == [], type(value)
        lines = value.to_text().split("\n")
        assert [line for line in (*lines, *str(value).split("\n")) if clean(line) != line] == [], type(value)
        assert len(lines) < 40, "a text with line ends makes no lines of its own"


@pytest.mark.parametrize("attack", ATTACKS)
def test_stored_attacks_are_shown_and_not_run(attack: str) -> None:
    silent = {"OtherGeneration", "NotYetRepublished"}
    for value in every(attack):
        html = Markup(value._repr_html_())
        assert html.foreign == [], type(value)
        assert (clean(attack) in html.text) == (type(value).__name__ not in silent), type(value)


def test_html_and_text_say_the_same() -> None:
    for value in every("orders"):
        words = re.findall(r"[^\s·]+", value.to_text(zone=timezone.utc).replace("·", " "))
        shown = Markup(value.to_html(zone=timezone.utc)).text
        title = value.sheet().title
        missing = [word for word in words if word.removesuffix(":") not in shown and word != f"{title}:"]
        assert missing == [], type(value)


@pytest.mark.parametrize(
    "name",
    [
        *(found.name for found in pkgutil.iter_modules(mirrorlake.render.__path__, "render.")),
        *(f"model.{name}" for name in ("causes", "groups", "offset_map", "parked", "plan", "verify")),
        "status.status",
        "topics.topic_list",
    ],
)
def test_the_examples_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"mirrorlake.{name}"))
    assert result.failed == 0
    assert result.attempted > 0


def test_a_value_stays_small_however_many_flows_there_are() -> None:
    flows = [replace(status(f"f{n}"), partitions=(partition_status(),) * 100) for n in range(100)]
    late = status("late", partition_status(state="behind", lag=3))
    reports = VerifyReports([*(report(f"f{n}", equal=True) for n in range(100)), report("bad")])
    for value, word in ((Status(flows=(*flows, late), observed_at=NOON), "! WARNING"), (reports, "✗ altered")):
        html = value._repr_html_()
        assert Markup(html).elements.count("tr") <= 160
        assert len(html) < 200_000
        assert word in html
        assert value.to_text(rows=None).count("\n") > 190


@pytest.mark.law("E")
def test_law_e_a_verification_that_compared_nothing_does_not_say_equal() -> None:
    empty = VerifyReport(flow="a->c", equal=True, partitions=(), differences=())
    proof = ProofReport(verification="v", at=NOON, proofs=(), reports=(empty,))
    for value in (empty, VerifyReports([empty]), proof):
        assert "nothing compared" in value.to_text().splitlines()[0], "law E"
        assert "✓ equal" not in value.to_text()
    assert "✓ equal" in VerifyReports([empty, report("f", equal=True)]).to_text().splitlines()[0]


def test_a_status_is_a_mapping_with_a_verdict_and_totals() -> None:
    first = status("a->c", partition_status(), partition_status(partition=1, state="behind", lag=40))
    second = status("b->c", partition_status(state="paused", lag=2))
    found = Status(flows=(first, second), observed_at=NOON)
    assert (dict(found), list(found), found["a->c"]) == ({"a->c": first, "b->c": second}, ["a->c", "b->c"], first)
    assert ([row.partition for row in first], first[1].state, len(first[:1])) == ([0, 1], "behind", 1)
    assert (found.verdict, first.verdict, second.verdict) == ("WARNING", "WARNING", "PAUSED")
    assert (found.state, first.state, second.state) == ("behind", "behind", "paused")
    assert (found.offset_lag, found.time_lag_ms, second.offset_lag) == (42, 40_000, 2)
    with pytest.raises(KeyError):
        found["nobody"]
    assert found.to_text(zone=timezone(timedelta(hours=2))).split("\n")[0] == (
        "Status: ! WARNING · 2 flows · 3 partitions · 1 WARNING · 1 PAUSED · 1 OK · offset lag 42 · time lag 40.0 s"
        " · 2026-07-01 14:00:00 +02:00 (12:00:00 UTC)"
    )
    assert found.as_dict()["flows"][1]["partitions"][0]["state"] == "paused"


def test_a_status_rolls_up_by_topic_and_opens_to_partitions() -> None:
    rows = [
        *(partition_status("orders", p) for p in range(3)),
        partition_status("orders", 3, state="behind", lag=7),
        replace(partition_status("clicks"), proven_until=1000, in_per_s=2.0, out_per_s=1.5, eta_ms=0),
    ]
    found = Status(flows=(status("f", *rows),), observed_at=NOON)
    clicks, orders = found["f"].topics.values()
    assert (orders.verdict, orders.reason, orders.offset_lag, orders.time_lag_ms) == (
        *("WARNING", "orders-3: it is behind"),
        *(7, 7000),
    )
    assert (clicks.in_per_s, clicks.not_proven, orders.in_per_s, orders.eta_ms) == (2.0, 0, None, None)
    lines = found.to_text().split("\n")
    assert re.search(r"orders +! WARNING +7 +7\.0 s .* nothing +orders-3: it is behind$", lines[2])
    assert re.search(r"clicks +✓ OK .* 2 +1\.5 .* all +it is caught_up$", lines[3])
    assert len(lines) == 4
    assert found.by("partition").to_text().count("orders") == 4
    assert "landed up to" in found.by("partition").to_text()
    assert found.by("partition").as_dict() == found.as_dict()


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        ("UNKNOWN", "? UNKNOWN"),
        ("CLUSTER_AWAY", "✗ CLUSTER AWAY"),
        ("OK", "✓ OK"),
        ("PAUSED", "‖ PAUSED"),
    ],
)
def test_what_is_not_known_is_grey_and_never_green(verdict: str, shown: str) -> None:
    found = status("f", replace(partition_status(lag=2), verdict=verdict))
    assert shown in found.to_text()
    green, grey = "--jp-success-color1", "--jp-ui-font-color2"
    html = found.to_html()
    assert (green in html, grey in html) == (verdict == "OK", verdict in ("UNKNOWN", "PAUSED"))


def test_a_flow_without_topics_and_an_unknown_lag_are_said() -> None:
    assert "‖ UNKNOWN" in replace(status(), partitions=()).to_text()
    empty = replace(status("f"), partitions=())
    assert "no topic to mirror yet" in empty.to_text()
    assert "f: no topic to mirror yet" in Status(flows=(empty,), observed_at=NOON).to_text()
    row = partition_status(state="not_started", lag=9)
    assert "time lag –" in status("f", row).to_text()


def test_a_plan_shows_conflicts_first() -> None:
    rows = [Change(where="c", kind="topic", name=f"t{n}", action="create", after={"partitions": 3}) for n in range(99)]
    plan = Plan(
        (*rows, Change(where="c", kind="topic", name="odd", action="conflict", before=3, after=6, reason="by key"))
    )
    lines = plan.to_text().split("\n")
    assert lines[0] == "plan: · 100 changes · ✗ 1 conflict · 99 topics"
    assert re.search(r"✗ conflict +topic +odd +3 +6 +by key", lines[3])
    assert plan.to_text(rows=None).count("partitions=3") == 2, "what is the same in each row stands in the title"
    assert lines[-1].strip() == "… and 29 more rows of 79"


def test_a_plan_shows_topics_first_folds_the_rest_and_repeats_nothing() -> None:
    tables = [
        Change(where="lake", kind="table", name=f"/lake/meta/{n}", action="create", after="table", reason="missing")
        for n in range(12)
    ]
    made = {"partitions": 2, "configs": {"cleanup.policy": "compact"}}
    ledger = replace(tables[0], where="c", kind="topic", name="mirrorlake.a.c.ledger", after=made)
    topics = [replace(ledger, name=f"a.t{n}", after={"partitions": n}) for n in range(4)]
    long = [replace(one, name=f"{'x' * 240}{n:09}") for n, one in enumerate(topics)]
    plan = Plan((*tables, ledger, *topics, *long))
    assert plan.sheet().summary() == "· 21 changes · 8 topics, 1 ledger, 12 lake tables"
    html = Markup(plan.to_html(rows=None))
    assert html.foreign == []
    assert html.elements.count("details") == 2, "ledger and tables"
    shown = html.text
    assert shown.index("a.t0") < shown.index("mirrorlake.a.c.ledger") < shown.index("/lake/meta/0")
    assert "8 topics · c · create · topic · missing" in shown
    assert shown.count("missing") == 3, "a reason that all rows share is said once"
    assert long[0].name not in shown, "cut in the middle"
    assert shown.count(long[0].name[-9:]) == 1
    assert plan.to_html().count(f'title="{long[0].name}"') == 1, "whole where the mouse is"
    many = Plan(tuple(replace(ledger, name=f"a.t{n}") for n in range(503)))
    assert "and 483 more topics" in Markup(many.to_html(rows=None)).text
    assert Markup(many.to_html(rows=None)).elements.count("tr") == 505


def test_a_plan_of_groups_shows_what_is_held_back_first() -> None:
    plan = GroupPlan(
        "f", (group_position("a", "in_step"), group_position("b"), group_position("c", "hold", reason="active"))
    )
    lines = plan.to_text().split("\n")
    assert lines[0] == "groups of f: ! 1 held back · 3 groups · 1 position to move"
    assert [line.split()[0] for line in lines[2:]] == ["c", "b", "a"]
    assert "no group has a position" in GroupPlan("f", ()).to_text()
    assert "metadata" not in lines[1], "few clients write any"
    assert GroupPlan("f", (group_position("a", metadata="host-7"),)).to_text().endswith("  host-7")


def test_a_mirror_and_a_flow_show_their_settings_without_secrets_and_ask_nobody(mirror: ml.Mirror) -> None:
    flow = mirror["east->central"]
    assert (repr(mirror), repr(flow), repr(flow.offsets)) == (
        *("Mirror(east->central)", "FlowHandle(east->central)", "Offsets(east->central)"),
    )
    html, text = Markup(mirror._repr_html_()), str(mirror)
    assert html.foreign == []
    for word in ("east->central", "orders, clicks.*", "127.0.0.1:1", "${env:NOBODY:-127.0.0.1:2}", "sasl.password"):
        assert word in html.text
        assert word in text
    assert "lake: s3a://********@bucket/lake?********" in text
    shown = str(flow)
    assert shown.startswith("east->central: exactly_once delivery · 4 lanes")
    assert re.search(r"target +central \(\$\{env:NOBODY", shown)
    assert re.search(r"producer +batch.size, linger.ms", shown)
    assert Markup(flow._repr_html_()).foreign == []
    for value in (mirror, flow):
        assert [face for face in faces(value) if SECRET in face] == []


def test_jupyter_gets_html_and_a_terminal_text(shell: InteractiveShell) -> None:
    assert shell.display_formatter is not None
    bundle, _ = shell.display_formatter.format(report("f", equal=True))
    assert bundle["text/plain"].startswith("verify f: ✓ equal")
    assert Markup(bundle["text/html"]).foreign == []
    with capture_output() as captured:
        ml.show(status("f"), zone=timezone.utc)
        ml.show(7)
    first, second = captured.outputs
    assert "2026-07-01 12:00:00 UTC" in unwrapped(first.data["text/html"])
    assert first.data["text/plain"].startswith("f: ✓ OK")
    assert second.data["text/plain"] == "7"


def test_show_speaks_to_databricks(shell: InteractiveShell) -> None:
    html: list[str] = []
    grids: list[object] = []
    shell.user_ns |= {"displayHTML": html.append, "display": grids.append}
    ml.show(report("f", equal=True), rows=None)
    ml.show("a frame")
    assert "✓ equal" in html[0]
    assert (len(html), grids) == (1, ["a frame"])


def test_show_prints_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    ml.show(NoRecord(14, "compacted"))
    assert capsys.readouterr().out == "offset: · in_a_hole · compacted · a reader continues at 14\n"
