"""Drafts: what is filled in comes to the same settings as a file written by hand, and never holds a password."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirrorlake.config.edit.draft import ClusterDraft, Draft, FlowDraft
from mirrorlake.config.edit.yaml_writer import written
from mirrorlake.config.load import load, loads
from mirrorlake.errors import ConfigError, UsageError

CONF = Path(__file__).parents[3] / "conf"
EAST, WEST = ClusterDraft(alias="east", servers="e:9092"), ClusterDraft(alias="west", servers="w:9092")


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yml")), ids=lambda path: path.name)
def test_opening_a_file_as_a_draft_changes_nothing(path: Path) -> None:
    content = written(load(path)).content
    for flow in [flow.name for flow in load(path).flows]:
        draft = Draft.of(content, flow)
        assert draft.flow.called == flow
        assert draft.yaml == written(load(path)).yaml


def test_what_was_filled_in_is_what_a_person_would_write() -> None:
    east = replace(EAST, security="SASL_SSL", username="me", ca="/ca.pem", never_leave="pii.*")
    flow = FlowDraft(
        source="east",
        target="west",
        topics="orders, clicks.*",
        exclude_topics="clicks-tmp",
        policy="template",
        template="all.{topic}",
        keep="value.region = 'eu'",
        mask="card, items[*].iban",
        groups="billing",
        sync_acls=True,
    )
    assert Draft(clusters=(east, WEST), flow=flow).yaml == (
        "lake:\n  root: ./lake\n\n"
        "clusters:\n"
        "  east:\n"
        "    bootstrap_servers: e:9092\n"
        "    client:\n"
        "      security.protocol: SASL_SSL\n"
        "      ssl.ca.location: /ca.pem\n"
        "      sasl.mechanism: SCRAM-SHA-512\n"
        "      sasl.username: me\n"
        "      sasl.password: ${env:EAST_SASL_PASSWORD}\n"
        "    never_leave: pii.*\n"
        "  west:\n"
        "    bootstrap_servers: w:9092\n\n"
        "flows:\n"
        "  - source: east\n"
        "    target: west\n"
        "    topics: orders, clicks.*\n"
        "    exclude_topics: clicks-tmp\n"
        "    policy:\n"
        "      template: all.{topic}\n"
        "    groups: billing\n"
        "    sync:\n"
        "      acls: true\n"
        "    rules:\n"
        "      - name: only\n"
        "        keep: value.region = 'eu'\n"
        "      - name: masked\n"
        "        mask:\n"
        "          - card\n"
        "          - items[*].iban\n"
    )


def test_a_second_flow_stands_beside_the_first_and_an_edited_one_in_its_place() -> None:
    content = written(load(CONF / "demo.yml")).content
    names = [flow.name for flow in load(CONF / "demo.yml").flows]
    new = replace(Draft.of(content), flow=FlowDraft(source="east", target="west", topics="audit"))
    assert [flow.name for flow in new.config().flows] == [*names, "east->west"]
    edited = Draft.of(content, names[0])
    edited = replace(edited, flow=replace(edited.flow, topics="payments.*"))
    assert [flow.name for flow in edited.config().flows] == names
    assert str(edited.config().flow(names[0]).topics) == "payments.*"


def test_a_password_in_the_open_is_refused_and_not_repeated() -> None:
    for password in ("hunter2", "${env:X:-hunter2}"):
        east = replace(EAST, security="SASL_SSL", username="me", password=password)
        with pytest.raises(UsageError) as refused:
            Draft(clusters=(east, WEST), flow=FlowDraft(source="east", target="west", topics="a")).yaml  # noqa: B018
        assert "hunter2" not in str(refused.value)


def test_every_fault_of_a_draft_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        Draft(clusters=(EAST, WEST), flow=FlowDraft(source="east", target="nowhere", topics="orders*")).config()
    assert len(refused.value.faults) == 2


def test_the_settings_of_a_draft_are_read_like_a_file() -> None:
    draft = Draft(clusters=(EAST, WEST), flow=FlowDraft(source="east", target="west", topics="orders"))
    assert loads(draft.yaml).model_dump() == draft.config().model_dump()
