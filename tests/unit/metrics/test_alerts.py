"""The alert rules and the dashboard: expressions ask for what is served, rules fire for their cases, every alert has its page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from mirrorlake.cli.app import app

HOUSE = Path(__file__).parents[3]
ALERTS = yaml.safe_load((HOUSE / "conf/prometheus/alerts.yml").read_text())
BOARD = json.loads((HOUSE / "conf/grafana/mirrorlake.json").read_text())
CASES = yaml.safe_load((HOUSE / "conf/prometheus/alerts_test.yml").read_text())
PAGE = (HOUSE / "docs/alerts.md").read_text()
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
TARGETS = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]
# What docs/metrics.md lists, with its labels; Prometheus adds `instance` and `job` when it scrapes.
METRICS = {
    name: {label.strip() for label in labels.split(",") if label.strip()} | {"instance", "job"}
    for name, labels in re.findall(
        r"^\| `((?:mirrorlake|kafka)_\w+)` \|([^|]*)\|", (HOUSE / "docs/metrics.md").read_text(), re.M
    )
}


def selectors(expression: Any) -> Iterator[Any]:
    """Yield every selector within a parsed expression."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    elif isinstance(expression, promql_parser.MatrixSelector):
        yield expression.vector_selector
    for name in ("expr", "lhs", "rhs"):
        if (part := getattr(expression, name, None)) is not None:
            yield from selectors(part)
    for part in getattr(expression, "args", ()) or ():
        yield from selectors(part)


@pytest.mark.parametrize(
    ("name", "expression"), [(rule["alert"], rule["expr"]) for rule in RULES] + TARGETS, ids=lambda one: one[:40]
)
def test_an_expression_asks_for_metrics_and_labels_that_are_served(name: str, expression: str) -> None:
    found = list(selectors(promql_parser.parse(expression)))
    assert found, name
    for selector in found:
        assert selector.name in METRICS, name
        assert {matcher.name for matcher in selector.matchers.matchers} <= METRICS[selector.name], name


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool", path=f"{os.environ.get('PATH', '')}:{HOUSE / 'build'}")
    assert found, "no promtool was found; next (Debian): make promtool"
    return subprocess.run(
        [found, *arguments], cwd=HOUSE / "conf/prometheus", capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_prometheus_takes_the_rules_and_they_fire_when_their_cases_say(command: tuple[str, ...]) -> None:
    done = promtool(*command)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_has_cases_in_which_it_is_silent_then_fires_then_is_silent_again(rule: dict[str, Any]) -> None:
    told = [
        [bool(look["exp_alerts"]) for look in case["alert_rule_test"] if look["alertname"] == rule["alert"]]
        for case in CASES["tests"]
    ]
    assert [False, True, False] in told


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_who_wakes_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    # Where `make site` puts the page, and the anchor of its section.
    assert (page, anchor) == ("docs/alerts/", rule["alert"].lower())
    served = set().union(*(METRICS[one.name] for one in selectors(promql_parser.parse(rule["expr"]))))
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= served


def test_every_page_of_an_alert_belongs_to_a_rule() -> None:
    headings = re.findall(r"^## (.+)$", (HOUSE / "docs/alerts.md").read_text(), re.M)
    assert headings == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("section", PAGE.split("\n## ")[1:], ids=lambda section: str(section.split("\n")[0]))
def test_a_page_says_when_what_it_means_what_to_do_and_how_to_go_back(section: str) -> None:
    assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.M) == ["When", "Means", "Do", "Back"]
    name = section.split("\n")[0]
    [rule] = [rule for rule in RULES if rule["alert"] == name]
    minutes = re.fullmatch(r"(\d+)m", rule.get("for", ""))
    when = section.partition("**Means.**")[0]
    said = {"1m": "a minute ago"}.get(rule.get("for", ""), f"{minutes[1]} minutes" if minutes else "")
    assert said in when or name == "MirrorIsNotWatched", "the page says the rule's own time"


def test_commands_of_the_pages_exist() -> None:
    known = {command.name or str(command.callback.__name__) for command in app.registered_commands if command.callback}
    assert set(re.findall(r"`mirrorlake ([a-z-]+)", PAGE)) <= known
