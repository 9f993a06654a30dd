"""Drafts: what is filled in comes to the same settings as a file written by hand, and never holds a password."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirrorlake.config import load, loads
from mirrorlake.config.edit import BLANK_CLUSTER, BLANK_FLOW, Draft, difference, save, without_secrets
from mirrorlake.errors import ConfigError, UsageError

CONF = Path(__file__).parents[3] / "conf"


def with_cluster(draft: Draft, alias: str, **fields: str) -> Draft:
    """Return a draft in which these fields of a cluster are filled in."""
    return draft.with_cluster(alias, {**draft.clusters.get(alias, BLANK_CLUSTER), **fields})


def with_flow(draft: Draft, of: str = "", **fields: Any) -> Draft:
    """Return a draft in which these fields of a flow are filled in."""
    return draft.with_flow({**draft.flows.get(of, BLANK_FLOW), **fields}, of=of)


TWO = with_cluster(with_cluster(Draft(), "east", servers="e:9092"), "west", servers="w:9092")


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yml")), ids=lambda path: path.name)
def test_opening_a_file_as_a_draft_changes_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert without_secrets(text) == (text, {}), "the files hold references only"
    draft = Draft.of(text)
    assert draft.text == text
    assert list(draft.flows) == [flow.name for flow in load(path).flows]
    for name, fields in draft.flows.items():
        assert draft.with_flow(fields, of=name) is draft
    for alias, cluster in draft.clusters.items():
        assert draft.with_cluster(alias, cluster) is draft


def test_what_was_filled_in_is_what_a_person_would_write() -> None:
    draft = with_cluster(TWO, "east", security="SASL_SSL", username="me", ca="/ca.pem", never_leave="pii.*")
    filled = with_flow(
        draft,
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
    assert filled.config().text == filled.text
    assert filled.text == (
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


def test_a_password_in_the_open_is_refused_and_not_repeated() -> None:
    for password in ("hunter2", "${env:X:-hunter2}"):
        with pytest.raises(UsageError) as refused:
            with_cluster(TWO, "east", security="SASL_SSL", username="me", password=password)
        assert "hunter2" not in str(refused.value)


def test_a_cluster_is_checked_before_a_flow_needs_it() -> None:
    assert TWO.cluster("east").servers() == "e:9092"
    wrong = with_cluster(TWO, "east", servers="e", never_leave="(")
    with pytest.raises(ConfigError) as refused:
        wrong.cluster("east")
    assert [fault.path for fault in refused.value.faults] == [
        "clusters.east.bootstrap_servers",
        "clusters.east.never_leave",
    ]
    assert with_cluster(TWO, "east", never_leave=".*").cluster("east").never_leave, "no flow is asked about"


COMMENTED = """\
# Two regions.
lake: {root: "./lake"}  # on this machine

clusters:
  # The first one.
  east:
    bootstrap_servers: "${env:EAST:-e:9092}"  # its brokers
    # How to log in.
    client:
      security.protocol: SASL_SSL
      sasl.mechanism: PLAIN
      sasl.username: me
      sasl.password: ${secret:kafka/east}

  # The second one.
  west: {bootstrap_servers: 'w:9092'}

flows:
  # Orders first.
  - source: east
    target: west
    topics:
      # money
      - orders
      - ${env:MORE_TOPICS:-payments}  # named by the environment
    sync: {groups: no}  # on purpose
    # Where it begins.
    start: {timestamp: 2026-01-01T00:00:00Z}
    rules:
      - name: tests  # not ours
        drop: "headers['test'] = '1'"
    # Then the way back.
  - source: west
    target: east
    topics: orders
    lanes: 1

# Runs.
tracking:
  enabled: false
"""


def comments(text: str) -> list[str]:
    return re.findall(r"(?<!\S)#.*", text)


def references(text: str) -> list[str]:
    return re.findall(r"\$\{.*?\}", text)


@pytest.mark.parametrize(
    "edit",
    [
        {"topics": "orders, ${env:MORE_TOPICS:-payments}, clicks"},
        {"exclude_topics": "orders-tmp", "exclude_groups": "", "groups": "no"},
        {"policy": "template", "template": "all", "topics": "orders, ${env:MORE_TOPICS:-payments}"},
        {"sync_acls": True, "sync_groups": True},
        {"keep": "value.region = 'eu'", "mask": "card, iban"},
    ],
    ids=lambda edit: "-".join(edit),
)
def test_an_edit_of_one_flow_keeps_every_comment_and_reference(edit: dict[str, Any]) -> None:
    text = with_flow(Draft.of(COMMENTED), "east->west", **edit).text
    assert comments(text) == comments(COMMENTED)
    assert references(text) == references(COMMENTED)
    assert text.splitlines()[-9:] == COMMENTED.splitlines()[-9:], "another flow, another section"


def test_a_new_flow_with_the_name_of_another_is_refused_and_another_name_makes_a_copy() -> None:
    opened = Draft.of(COMMENTED)
    with pytest.raises(ConfigError, match="a second flow 'east->west'") as refused:
        with_flow(opened, source="east", target="west", topics="clicks").config()
    assert "name of its own" in str(refused.value)
    text = with_flow(opened, "east->west", name="main", topics="audit").text
    assert [flow.name for flow in loads(text).flows] == ["east->west", "west->east", "main"]
    assert loads(text).flow("main").rules == loads(text).flow("east->west").rules
    assert [line for line in difflib.ndiff(COMMENTED.splitlines(), text.splitlines()) if line.startswith("-")] == []
    assert text.count("# Then the way back.") == 1


def test_an_edit_changes_nothing_that_shares_an_anchor_with_its_place() -> None:
    text = (
        "lake:\n  root: ./lake\nclusters:\n  east:\n    bootstrap_servers: e:9092\n    client: &tls\n"
        "      security.protocol: SSL\n      ssl.ca.location: /ca.pem\n"
        "  west:\n    bootstrap_servers: w:9092\n    client: *tls\n"
        "flows:\n  - &first\n    source: east\n    target: west\n    topics: orders\n    sync: {acls: true}\n"
        "    exclude_topics: [a, b]\n  - <<: *first\n    name: second\n    topics: clicks\n"
    )
    opened = Draft.of(text)
    assert opened.text == text
    for east, west in (("/ca.pem", "/w.pem"), ("/e.pem", "/ca.pem")):
        edited = with_cluster(with_cluster(opened, "east", ca=east), "west", ca=west)
        flow = {"sync_acls": False, "sync_groups": False, "exclude_topics": "a, c"}
        config = with_flow(edited, "second", **flow).config()
        assert [config.clusters[alias].client["ssl.ca.location"] for alias in ("east", "west")] == [east, west]
        assert (config.flows[0].sync.acls, config.flows[1].sync.acls) == (True, False)
        assert [flow.exclude_topics.expressions for flow in config.flows] == [("a", "b"), ("a", "c")]


def test_what_is_taken_out_leaves_the_comments_of_its_neighbours() -> None:
    opened = Draft.of(COMMENTED)
    draft = with_cluster(with_cluster(opened, "west", servers="w:9092, v:9092"), "east", security="PLAINTEXT")
    text = with_cluster(draft, "east", never_leave="pii.*").text
    assert "never_leave: pii.*" in text
    assert comments(text) == comments(COMMENTED)
    assert "sasl" not in text
    assert "# The second one.\n  west:" in opened.without_cluster("east").text


def test_a_secret_in_place_becomes_a_reference_and_is_written_nowhere() -> None:
    secret = "hunter2-very-secret"  # noqa: S105
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{secret}";'
    options = {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}
    content = {
        "lake": {"root": "./lake"},
        "clusters": {"east": {"bootstrap_servers": "e:9092"}, "west": {"bootstrap_servers": "w:9092"}},
        "flows": [{"source": "east", "target": "west", "topics": "orders"}],
    }
    for client in (
        {"sasl.username": "u", "sasl.password": secret},
        {"sasl.username": "u", "sasl.password": f"${{env:NOT_SET:-{secret}}}"},
        {"sasl.jaas.config": jaas},
    ):
        content["clusters"]["east"]["client"] = {**options, **client}
        text, found = without_secrets(yaml.safe_dump(content))
        assert secret not in text + repr(Draft.of(text))
        assert list(found) in (["${env:EAST_SASL_PASSWORD}"], ["${env:EAST_SASL_JAAS_CONFIG}"])
        assert all(reference in text and secret in value for reference, value in found.items())
        loads(text)
    content["clusters"]["east"]["client"] = {
        **options,
        "sasl.username": "u",
        "sasl.password": "${secret:kafka/password}",
    }
    content["flows"][0]["rules"] = [{"hash": {"fields": ["email"], "key": secret}}]
    text, found = without_secrets(yaml.safe_dump(content))
    assert found == {"${env:EAST_WEST_RULE_1_KEY}": secret}
    assert "password: ${secret:kafka/password}" in text


def test_saving_replaces_a_file_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "conf" / "mirror.yml"
    assert save(COMMENTED, file) == file
    other_text = with_flow(Draft.of(COMMENTED), "east->west", topics="orders").text
    with pytest.raises(UsageError, match="holds other settings"):
        save(other_text, file)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fails)
        with pytest.raises(UsageError, match="No space left"):
            save(other_text, file, replace=True)
    assert file.read_text(encoding="utf-8") == COMMENTED
    assert list(file.parent.iterdir()) == [file]
    save(other_text, file, replace=True)
    assert file.read_text(encoding="utf-8") == other_text


def test_a_flow_that_is_removed_takes_its_own_comment_along_and_no_other() -> None:
    opened = Draft.of(COMMENTED)
    gone = opened.without_flows(["west->east"]).config().text
    found = list(difflib.ndiff(COMMENTED.splitlines(), gone.splitlines()))
    taken = ["# Then the way back.", "- source: west", "target: east", "topics: orders", "lanes: 1"]
    assert [line[1:].strip() for line in found if line[0] in "+-"] == taken
    assert opened.without_flows(["east->west"]).text.count("# Then the way back.") == 1
    with pytest.raises(ConfigError):
        opened.without_flows(["east->west", "west->east"]).config()


def test_the_difference_of_a_file_that_changed_since_it_was_read_shows_no_secret() -> None:
    before = COMMENTED.replace("${secret:kafka/east}", "hunter2-old")
    elsewhere = before.replace("hunter2-old", "hunter2-new").replace("lanes: 1", "lanes: 3")
    shown = difference(before, elsewhere)
    assert "+    lanes: 3" in shown
    assert "hunter2" not in shown
    assert "hunter2" not in difference(before, f"{elsewhere}\n}}: hunter2")
