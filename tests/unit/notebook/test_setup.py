"""The set-up form without a browser: the preview, the plan, apply, the user's own file, and passwords that are nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mirrorlake as ml
from mirrorlake.config import load, secrets
from mirrorlake.doctor import Tried
from mirrorlake.errors import StoreError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.model.plan import Change, Plan
from mirrorlake.notebook import setup as form_module
from mirrorlake.notebook.setup import Setup
from tests.unit.markup import unwrapped
from tests.unit.notebook.kit import EVIL, click, state

SECRET = "hunter2verysecret"  # noqa: S105
OWN = """\
# Ours.
lake: {root: ../lake}  # on the large disk
clusters:
  # The first one.
  east: {bootstrap_servers: "${env:EAST:-e:9092}"}
  west:
    bootstrap_servers: 'w:9092'  # in the cellar
    never_leave:
      - pii.*  # by law

flows:
  # Money first.
  - source: east
    target: west
    topics: orders  # never more
    rules:
      - {name: only, keep: "value.region = 'eu'"}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "settings" / "ours.yml"
    file.parent.mkdir()
    file.write_text(OWN)
    return file


@pytest.fixture
def form(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path / "conf" / "mirror.yml")
    yield made
    made.close()
    secrets._TYPED.clear()


def add_cluster(form: Setup, alias: str, **fields: str) -> None:
    form.cluster.value = form_module.NEW
    form.alias.value, form.servers.value = alias, f"{alias}:9092"
    for name, value in fields.items():
        getattr(form, name).value = value
    click(form, "cluster-add")


def fill_flow(form: Setup, source: str, target: str, topics: str) -> None:
    form.source.value, form.target.value, form.topics_field.value = source, target, topics


def fill(form: Setup, topics: str = "orders, clicks.*") -> None:
    add_cluster(form, "east")
    add_cluster(form, "west")
    fill_flow(form, "east", "west", topics)
    assert form.work.problems == []


def test_the_preview_follows_every_key(form: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    there = ("clicks", "orders", "pii-names", "west.orders", "__consumer_offsets", EVIL)
    monkeypatch.setattr(form_module, "try_cluster", lambda _, alias: Tried(alias=alias, ok=True, topics=there))
    add_cluster(form, "east", never_leave="pii.*")
    add_cluster(form, "west")
    fill_flow(form, "east", "west", "orders")
    assert "Read the source" in form.preview.value
    click(form, "flow-read")
    assert "east.orders" in unwrapped(form.preview.value)
    assert "clicks" not in unwrapped(form.preview.value)
    form.topics_field.value = "orders, clicks*"
    assert "dangling star" in form.preview.value, "said where it is typed"
    assert form.work.problems == [], "half-typed patterns are no alarm"
    form.topics_field.value = ".*"
    for word in ("east.clicks", "never_leave keeps it", "it came from the target", "exclude_topics|internal"):
        assert re.search(word, unwrapped(form.preview.value)), word
    form.policy.value = "identity"
    assert "east.clicks" not in unwrapped(form.preview.value)
    form.policy.value, form.template.value = "template", "all.{topic}"
    assert "all.clicks" in unwrapped(form.preview.value)
    assert "<script" not in state(form)


def test_what_was_filled_in_is_what_a_person_would_write_and_the_file_is_new(form: Setup) -> None:
    fill(form)
    form.exclude_topics.value = "clicks-tmp"
    click(form, "flow-add")
    fill_flow(form, "west", "east", "refunds")
    click(form, "save")
    assert form.work.problems == []
    assert form.path.read_text() == (
        "lake:\n  root: ../lake\n\n"
        "clusters:\n"
        "  east:\n    bootstrap_servers: east:9092\n"
        "  west:\n    bootstrap_servers: west:9092\n\n"
        "flows:\n"
        "  - source: east\n    target: west\n    topics: orders, clicks.*\n    exclude_topics: clicks-tmp\n"
        "  - source: west\n    target: east\n    topics: refunds\n"
    )


@pytest.mark.law("G")
def test_law_g_only_the_plan_that_was_shown_is_applied_and_only_by_name(
    form: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan((Change(where="west", kind="topic", name=EVIL, action="create", after=1, reason=EVIL),))
    applied: list[tuple[list[str], Plan]] = []

    def apply(mirror: Mirror, *, plan: Plan) -> Plan:
        applied.append(([flow.name for flow in mirror.config.flows], plan))
        return plan

    monkeypatch.setattr(Mirror, "plan", lambda _: plan)
    monkeypatch.setattr(Mirror, "apply", apply)
    fill(form)
    click(form, "setup-plan")
    assert form.work.problems == []
    assert "topics: orders, clicks.*" in form.yaml.value
    assert "&lt;script" in form.box.shown.value
    click(form, "setup-apply")
    assert "the name was not typed" in form.work.problems[0]
    form.box.typed.value = "east->west"
    form.topics_field.value = "other"
    click(form, "setup-apply")
    assert "no plan is shown" in form.work.problems[0]
    assert applied == []
    click(form, "setup-plan")
    form.box.typed.value = "east->west"
    click(form, "setup-apply")
    assert applied == [(["east->west"], plan)]
    assert applied[0][1] is plan
    assert form.mirror is not None
    assert form.mirror.config.flows[0].topics.expressions == ("other",)
    assert "<script" not in state(form)


def test_an_edit_goes_into_the_users_own_file_with_its_comments_and_not_over_what_somebody_else_wrote(
    own: Path,
) -> None:
    form = Setup(own)
    form.flow.value = "east->west"
    assert (form.topics_field.value, form.source.value) == ("orders", "east")
    click(form, "save")
    assert own.read_text() == OWN, "opening a file changes nothing"
    form.topics_field.value = "orders, refunds"
    form.cluster.value = "west"
    form.never_leave.value = "pii.*, hr.*"
    click(form, "cluster-add")
    click(form, "save")
    assert form.work.problems == []
    edited = OWN.replace("orders  # never", "orders, refunds # never").replace("by law\n", "by law\n      - hr.*\n")
    assert own.read_text() == edited

    changed = edited.replace("Money first", "Money, always")
    own.write_text(changed)
    form.topics_field.value = "orders"
    click(form, "save")
    assert "has changed since it was read" in form.work.problems[0]
    assert own.read_text() == changed
    assert form.topics_field.value == "orders", "the form stays"


def test_a_flow_that_was_typed_is_taken_when_another_one_is_opened_and_a_wrong_one_stays(own: Path) -> None:
    form = Setup(own)
    fill_flow(form, "west", "east", "clicks")
    form.flow.value = "east->west"
    assert "west->east" in form.flow.options
    assert "topics: clicks" in form.text
    form.topics_field.value = "half ("
    form.flow.value = "west->east"
    assert "half" in form.work.problems[0]
    assert (form.flow.value, form.topics_field.value) == ("east->west", "half (")
    form.topics_field.value, form.name.value = "refunds", "second"
    click(form, "flow-add")
    assert [flow.name for flow in form.settings().flows] == ["east->west", "west->east", "second"]


def test_a_password_is_in_no_widget_no_yaml_and_no_message(
    form: Setup, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EAST_SASL_PASSWORD", raising=False)
    fill(form)
    form.cluster.value = "east"
    form.security.value, form.username.value, form.password.value = "SASL_SSL", "me", SECRET
    assert form.password.value == "", "emptied at once"
    click(form, "cluster-add")
    assert form.work.problems == []
    assert "sasl.password: ${env:EAST_SASL_PASSWORD}" in form.text
    assert secrets.resolve("${env:EAST_SASL_PASSWORD}") == SECRET
    for mistake in (SECRET, f"${{env:X:-{SECRET}}}"):
        form.reference.value = mistake
        assert form.reference.value == "", "typed into the wrong field"
        assert "takes a reference only" in form.work.problems[0]

    def leak(*_: Any) -> Tried:
        raise StoreError(f"the cluster said: {SECRET}", remedy=f"use {SECRET!r}")

    monkeypatch.setattr(form_module, "try_cluster", leak)
    click(form, "cluster-test")
    assert secrets.MASK in form.work.problems[0]
    click(form, "save")
    out = capfd.readouterr()
    everywhere = state(form) + repr(form) + form.text + form.path.read_text() + out.out + out.err
    assert SECRET not in everywhere
    form.security.value = "PLAINTEXT"
    click(form, "cluster-add")
    assert "client" not in form.text, "what a plain connection does not need goes"


@pytest.mark.parametrize("password", [SECRET, f"${{env:MIRRORLAKE_NO_SUCH:-{SECRET}}}"])
def test_a_secret_in_the_file_becomes_a_reference(own: Path, password: str) -> None:
    client = f'client: {{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: me, sasl.password: "{password}"}}'
    own.write_text(OWN.replace('-e:9092}"}', f'-e:9092}}", {client}}}'))
    form = Setup(own)
    form.cluster.value = "east"
    assert SECRET not in state(form)
    assert secrets.resolve("${env:EAST_SASL_PASSWORD}") == SECRET
    secrets._TYPED.clear()


def test_a_wrong_cluster_is_refused_before_a_flow_needs_it(form: Setup) -> None:
    form.alias.value, form.servers.value = "east", "e"
    click(form, "cluster-add")
    assert "bootstrap_servers" in form.work.problems[0]
    assert "east" not in form.text


def test_a_file_that_cannot_be_written_is_a_mistake_and_the_old_one_stays(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = ml.setup(own)
    form.flow.value = "east->west"
    form.topics_field.value = "clicks"

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UsageError, match="No space left"):
        form.save()
    assert own.read_text() == OWN
    assert [one.name for one in own.parent.iterdir()] == [own.name]
    assert load(own).flows
