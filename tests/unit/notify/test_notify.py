"""Notifications: what is told, in which shape, once, and never at the mirror's cost; against a real server on loopback."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.config.loading import loads
from mirrorlake.config.schema import LakeConfig, ReceiverConfig
from mirrorlake.errors import ConfigError
from mirrorlake.lag import FlowStatus
from mirrorlake.lag.objectives import FlowObjectives
from mirrorlake.lake import Lake
from mirrorlake.mirror import Mirror
from mirrorlake.model.control import NOTIFIED, NOTIFY, Intention, Subject, state_of
from mirrorlake.model.parked import Parked
from mirrorlake.notify import mirror_id
from mirrorlake.notify import receiver as receiver_module
from mirrorlake.notify.delivery import Delivery
from mirrorlake.notify.facts import FlowFact, read_facts
from mirrorlake.notify.notifier import Notifier
from mirrorlake.notify.receiver import Receiver, send, stop_all, try_receiver
from mirrorlake.notify.templates import Notice
from tests.lakes import no_session
from tests.servers.webhook import Webhook, serving_webhook
from tests.unit.values import partition_status, status

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
FLOW = "east->central"
SETTINGS = """
lake: {root: ./lake}
clusters: {east: {bootstrap_servers: "e:1"}, central: {bootstrap_servers: "c:1"}}
flows: [{source: east, target: central, topics: [orders]}]
"""
[FLOW_CONFIG] = loads(SETTINGS).flows
AWAY = FlowFact(state="CLUSTER_AWAY", severity="critical", text="CLUSTER AWAY", reason="west is away <now>", since=NOON)
WELL = FlowFact(state="OK", severity="ok", text="OK")


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with serving_webhook() as hook:
        yield hook


@pytest.fixture(autouse=True)
def secrets_in_environment(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", webhook.url)
    monkeypatch.setenv("KEY", "r0uting-key")
    monkeypatch.setattr(receiver_module, "backoff_s", lambda *_, **__: 0.05)


def config(template: Any = "json", **settings: Any) -> ReceiverConfig:
    key = {"routing_key": "${env:KEY}"} if template == "pagerduty" else {}
    return ReceiverConfig.model_validate({"template": template, "url": "${env:HOOK}", **key, **settings})


def notice(fact: FlowFact = AWAY, **settings: Any) -> Notice:
    known = {"kind": "verdict", "flow": FLOW, "was": "OK", "at": NOON, "mirror": "1a2b3c4d", "host": "mirror-1"}
    return Notice(fact=fact, **{**known, **settings})


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@dataclass
class Told:
    """A receiver at work, and what it recorded: states of flows, and whether it takes messages."""

    receiver: Receiver
    rows: list[tuple[str, dict[str, str]]]
    failures: list[str]


@contextmanager
def telling(config: ReceiverConfig, sent: Mapping[str, Mapping[str, str]] | None = None) -> Iterator[Told]:
    rows: list[tuple[str, dict[str, str]]] = []
    failures: list[str] = []

    def make(kind: str, flow: str, was: str, fact: FlowFact, changes: int) -> Notice:
        return notice(fact, kind=kind, flow=flow, was=was, changes=changes)

    made = Receiver(
        config,
        sent=sent or {},
        record=lambda flow, states: rows.append((flow, dict(states))),
        make=make,
        delivery=Delivery(config.title, is_failing=False, record=failures.append),
    )
    made.start()
    try:
        yield Told(made, rows, failures)
    finally:
        made.stop()


# -- shapes -----------------------------------------------------------------------------------------------------------


def test_the_json_of_a_message_says_what_was_what_is_why_and_what_to_do(webhook: Webhook) -> None:
    assert send(config(), notice()) == ""
    assert webhook.bodies == [
        {
            "kind": "verdict",
            "flow": FLOW,
            "was": "OK",
            "is": "CLUSTER_AWAY",
            "severity": "critical",
            "summary": "east->central: CLUSTER AWAY",
            "reason": "west is away <now>",
            "since": "2026-07-01T12:00:00+00:00",
            "next": "mirrorlake status --flow 'east->central'",
            "at": "2026-07-01T12:00:00+00:00",
            "changes": 1,
            "mirror": "1a2b3c4d",
            "host": "mirror-1",
        }
    ]


def test_slack_gets_one_text_that_no_reason_can_mark_up(webhook: Webhook) -> None:
    assert send(config("slack"), notice(changes=3)) == ""
    assert webhook.bodies == [
        {
            "text": "*east-&gt;central: CLUSTER AWAY (3 changes since the last message)*\nwest is away &lt;now&gt;\n"
            "since 2026-07-01T12:00:00+00:00\n`mirrorlake status --flow 'east-&gt;central'`"
        }
    ]


def test_pagerduty_opens_an_incident_and_ends_the_same_one(webhook: Webhook) -> None:
    for fact in (AWAY, WELL):
        assert send(config("pagerduty"), notice(fact)) == ""
    began, ended = webhook.bodies
    assert (began["event_action"], ended["event_action"]) == ("trigger", "resolve")
    assert began["dedup_key"] == ended["dedup_key"] == "mirrorlake/1a2b3c4d/east->central/verdict"
    assert (began["routing_key"], began["payload"]["severity"]) == ("r0uting-key", "critical")
    assert began["payload"]["summary"] == "east->central: CLUSTER AWAY"
    paused = replace(WELL, state="PAUSED", severity="info", text="PAUSED")
    assert send(config("pagerduty"), notice(paused)) == ""
    assert webhook.bodies[-1]["event_action"] == "resolve", "what a person wanted is no incident"


def test_flows_with_long_names_have_incidents_of_their_own_for_each_kind(webhook: Webhook) -> None:
    for flow in ("a" * 300, "a" * 299 + "b"):
        for kind in ("verdict", "parked"):
            assert send(config("pagerduty"), notice(flow=flow, kind=kind)) == ""
    keys = [body["dedup_key"] for body in webhook.bodies]
    assert len(set(keys)) == 4
    assert max(map(len, keys)) <= 255


def test_two_lakes_with_equal_paths_are_two_mirrors_and_a_lake_stays_the_same_one(
    tmp_path: Path,
) -> None:
    ids = []
    for host in ("one", "two"):
        lake = Lake(no_session, LakeConfig(root=str(tmp_path / host)), sees_all=lambda: True)
        context: Any = SimpleNamespace(config=SimpleNamespace(lake=LakeConfig(root="/data/lake")), lake=lake)
        before = mirror_id(context)
        lake.create_all(["east"])
        ids.append((before, mirror_id(context), mirror_id(context)))
    assert ids[0][1] == ids[0][2]
    assert ids[0][1] != ids[1][1]
    assert len(ids[0][1]) == len(ids[0][0]) == 8, "before there is a lake, doctor sends a test, too"


def test_a_test_message_is_sent_to_each_shape_and_pagerduty_s_ends_again(webhook: Webhook) -> None:
    for template in ("json", "slack", "pagerduty"):
        assert try_receiver(config(template), at=NOON, mirror="m", host="h") == ""
    assert webhook.bodies[0]["kind"] == "test"
    assert "nothing is wrong" in webhook.bodies[1]["text"]
    assert [body["event_action"] for body in webhook.bodies[2:]] == ["trigger", "resolve"]


# -- facts ------------------------------------------------------------------------------------------------------------


def facts(found: FlowStatus, **counts: int) -> dict[str, FlowFact]:
    kinds = {"expired": ("east", "expired"), "compacted": ("east", "compacted"), "quarantined": (FLOW, "quarantined")}
    return read_facts(FLOW_CONFIG, found, {kinds[kind]: n for kind, n in counts.items()})


def test_a_verdict_is_told_with_since_when_and_what_nobody_knows_is_not() -> None:
    stalled = replace(partition_status(lag=4), verdict="STALL", reason="the position stood at 5", since=NOON)
    fact = facts(status(FLOW, stalled))["verdict"]
    assert (fact.state, fact.severity, fact.reason, fact.since) == (
        "STALL",
        "critical",
        "the position stood at 5",
        NOON,
    )
    away = replace(status(FLOW), partitions=(), unknown="west is away", away="west", answered_at=NOON)
    assert (facts(away)["verdict"].text, facts(away)["verdict"].since) == ("CLUSTER AWAY", NOON)
    for verdict in ("WARMING_UP", "UNKNOWN"):
        young = replace(partition_status(lag=4), verdict=verdict)
        assert "verdict" not in facts(status(FLOW, young)), "it is no news that nothing is known yet"


def test_a_parked_stream_is_told_without_its_cause_which_may_quote_a_record() -> None:
    cause = "the value 'card 4111' is no number"
    stream = Parked(stream=FLOW, since=NOON, error="StoreError", cause=cause, remedy=cause)
    found = facts(replace(status(FLOW), parked=(stream,)))
    assert found["parked"].severity == "critical"
    assert found["parked"].reason == f"{FLOW} since 2026-07-01T12:00:00+00:00 (StoreError); it waits for a person"
    assert "4111" not in str(found)
    stalled = replace(partition_status(lag=4), verdict="STALL")
    assert "4111" not in str(facts(replace(status(FLOW, stalled), parked=(stream,)))), "nor by a verdict that is worse"
    retried = facts(replace(status(FLOW), parked=(replace(stream, is_retried=True),)))
    assert (retried["parked"].severity, retried["parked"].state) == ("warning", found["parked"].state)


@pytest.mark.parametrize("verdict", ["REWIND", "STALL"])
def test_reason_and_since_belong_to_the_verdict_that_is_told(verdict: str) -> None:
    stream = Parked(stream=FLOW, since=NOON, error="StoreError", cause="disk full", remedy="make room")
    later = NOON + timedelta(hours=1)
    worse = replace(partition_status(lag=4), verdict=verdict, reason="the position stood at 5", since=later)
    found = replace(status(FLOW, worse), parked=(stream,))
    assert (found.verdict, found.reason, found.since) == (verdict, "the position stood at 5", later)
    told = facts(found)
    assert (told["verdict"].reason, told["verdict"].since) == ("the position stood at 5", later)
    assert told["parked"].since == NOON
    stopped = replace(status(FLOW, replace(worse, verdict="WARNING")), parked=(stream,))
    assert (stopped.verdict, stopped.since) == ("STOP", NOON)
    assert facts(stopped)["verdict"].reason == "a stream is parked"


def test_a_partition_that_is_worse_than_a_cluster_that_is_away_gives_the_reason() -> None:
    stopped = replace(partition_status(lag=4), verdict="STOP", reason="no position was reported", since=None)
    retried = Parked(stream=FLOW, since=NOON, error="KafkaError", cause="away", remedy="wait", is_retried=True)
    found = replace(status(FLOW, stopped), unknown="west is away", away="west", answered_at=NOON, parked=(retried,))
    assert (found.verdict, found.reason, found.since) == ("STOP", "no position was reported", None)
    assert facts(found)["verdict"].reason == "no position was reported"


def test_objectives_losses_and_quarantine_are_facts_and_what_was_compacted_is_no_loss() -> None:
    missed = FlowObjectives(flow=FLOW, rpo_s=10, measured_rpo_s=31)
    found = facts(replace(status(FLOW), objectives=missed), expired=7, compacted=900, quarantined=3)
    assert (found["objective"].state, found["objective"].reason) == ("RPO", "RPO 31.0 s of 10.0 s, missed")
    assert (found["lost"].state, found["quarantined"].state) == ("7", "3")


# -- once, and in time --------------------------------------------------------------------------------------------------


def test_a_change_is_told_once_and_a_restart_does_not_tell_it_again(webhook: Webhook) -> None:
    with telling(config()) as told:
        told.receiver.offer(FLOW, {"verdict": WELL})
        until(lambda: told.rows == [(FLOW, {"verdict": "OK"})], "what was never told is written down")
        for _ in range(3):
            told.receiver.offer(FLOW, {"verdict": AWAY})
        until(lambda: told.rows[-1] == (FLOW, {"verdict": "CLUSTER_AWAY"}), "the message was sent")
    assert [(body["was"], body["is"]) for body in webhook.bodies] == [("OK", "CLUSTER_AWAY")]
    rows = [
        Intention(
            at=NOON, who="me", action=NOTIFY, subject=Subject(kind=NOTIFIED, name="json", flow=flow), value=states
        )
        for flow, states in told.rows[-1:]
    ]
    known = {flow: states for (_, flow), states in state_of(rows).notified.items()}
    with telling(config(), known) as again:
        again.receiver.offer(FLOW, {"verdict": AWAY})
        again.receiver.offer("other", {"verdict": AWAY})
        until(lambda: again.rows, "the other flow is told")
    assert [body["flow"] for body in webhook.bodies] == [FLOW, "other"]


def test_what_was_sent_is_written_down_before_the_next_message_fails(webhook: Webhook) -> None:
    webhook.answers = [200, *[500] * 1000]
    parked = FlowFact(state="a", severity="critical", text="a stream is parked")
    with telling(config()) as told:
        told.receiver.offer(FLOW, {"verdict": AWAY, "parked": parked})
        until(lambda: webhook.tried > 2, "the second message is tried again")
        assert told.rows == [(FLOW, {"verdict": "CLUSTER_AWAY", "parked": ""})]


def test_counts_are_told_when_they_grow_and_not_when_they_are_read_first(webhook: Webhook) -> None:
    def count(n: int) -> dict[str, FlowFact]:
        return {"lost": FlowFact(state=str(n), severity="critical", text=f"lost {n}")}

    with telling(config(min_interval="1s")) as told:
        told.receiver.offer(FLOW, count(7))
        until(lambda: told.rows == [(FLOW, {"lost": "7"})], "it is what later counts are compared with")
        told.receiver.offer(FLOW, count(9))
        until(lambda: told.rows[-1] == (FLOW, {"lost": "9"}), "the growth is told")
    assert [(body["was"], body["is"]) for body in webhook.bodies] == [("7", "9")]


def test_a_flow_that_flaps_sends_one_message_with_a_count_in_each_interval(webhook: Webhook) -> None:
    with telling(config(min_interval="1s")) as told:
        for fact in (AWAY, WELL, AWAY, WELL):
            told.receiver.offer(FLOW, {"verdict": fact})
            until(lambda: webhook.bodies, "the first is told at once")
        began = time.monotonic()
        assert len(webhook.bodies) == 1
        until(lambda: len(webhook.bodies) == 2, "the rest follows")
        assert time.monotonic() - began > 0.5
    assert (webhook.bodies[1]["is"], webhook.bodies[1]["changes"]) == ("OK", 3)


def test_only_the_kinds_and_flows_that_were_chosen_are_told(webhook: Webhook) -> None:
    parked = FlowFact(state="a", severity="critical", text="a stream is parked")
    with telling(config(on=["parked"], flows=[FLOW])) as told:
        told.receiver.offer("other", {"verdict": AWAY, "parked": parked})
        told.receiver.offer(FLOW, {"verdict": AWAY, "parked": parked})
        until(lambda: told.rows, "it is told")
    assert [(body["flow"], body["kind"]) for body in webhook.bodies] == [(FLOW, "parked")]


# -- a receiver that is away --------------------------------------------------------------------------------------------


def test_a_receiver_that_fails_is_tried_again_and_learns_the_newest(
    webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    webhook.answers = [500, 302, 429]
    with caplog.at_level(logging.WARNING), telling(config()) as told:
        told.receiver.offer(FLOW, {"verdict": AWAY})
        until(lambda: told.rows, "it is sent in the end")
    assert (webhook.tried, len(webhook.bodies)) == (4, 1), "a redirect is not followed"
    said = [record.message for record in caplog.records if record.name.startswith("mirrorlake.notify")]
    assert [line.split()[0] for line in said] == ["notify.not_sent", "notify.sent_again"], "one line for an outage"
    assert "why=it answers 500" in said[0]


@pytest.mark.parametrize("code", [400, 404, 413])
def test_a_message_that_is_refused_is_left_out_and_the_others_are_sent(
    webhook: Webhook, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    webhook.answers = [code]
    with caplog.at_level(logging.WARNING), telling(config()) as told:
        told.receiver.offer(FLOW, {"verdict": AWAY})
        until(lambda: webhook.tried, "the message is tried")
        told.receiver.offer("other", {"verdict": AWAY})
        until(lambda: len(told.rows) == 2, "the other flow is told")
        time.sleep(0.3)
    assert (webhook.tried, [body["flow"] for body in webhook.bodies]) == (2, ["other"])
    assert told.rows == [(FLOW, {"verdict": "OK"}), ("other", {"verdict": "CLUSTER_AWAY"})], (
        "what was refused is not written down as sent"
    )
    [said] = [record.message for record in caplog.records if record.name.startswith("mirrorlake.notify")]
    assert said.startswith(f"notify.refused receiver=json flow={FLOW} kind=verdict why=it answers {code} ")
    refused, taken = told.failures
    assert (refused.startswith(f"a message of {FLOW} (verdict) was left out: it answers {code}"), taken) == (True, "")


def test_a_receiver_that_takes_no_message_for_a_while_is_recorded_once_and_a_short_outage_is_not(
    webhook: Webhook,
) -> None:
    with telling(config(min_interval="1s")) as told:
        for codes, expected in (([503, 503], 0), ([401] * 9, 2)):
            webhook.answers = list(codes)
            sent = len(webhook.bodies)
            told.receiver.offer(FLOW, {"verdict": AWAY if expected else WELL})
            told.receiver.offer(f"flow {expected}", {"verdict": AWAY})
            until(lambda sent=sent: len(webhook.bodies) > sent, "it is sent in the end")
            # It is recorded after the receiver has it.
            until(lambda expected=expected: len(told.failures) >= expected, "what was recorded")
            assert len(told.failures) == expected
    assert told.failures == ["messages wait: it answers 401 Unauthorized", ""]


def test_an_operator_sees_in_status_events_and_doctor_that_messages_are_refused_until_one_is_taken(
    webhook: Webhook, tmp_path: Path
) -> None:
    settings = SETTINGS.replace("./lake", str(tmp_path / "lake")) + "notify: [{name: ops, url: '${env:HOOK}'}]\n"
    mirror = Mirror(loads(settings), display=lambda: None)

    def seen() -> tuple[list[tuple[str, bool]], list[str]]:
        events = [(f"{one.kind}: {one.subject}", one.is_open) for one in mirror.events("1h")]
        details = [one.detail for one in mirror.doctor(only=["lake.notify"]).bad]
        status = mirror.status()
        assert list(status.failing_receivers) == [f"ops: {detail}" for detail in details]
        assert all(f"receiver ops: {detail}; mirrorlake doctor --notify" in str(status) for detail in details)
        return events, details

    def tell(flow: str) -> None:
        # Each is a run of its own.
        notifier, tried = Notifier(mirror._context), webhook.tried
        notifier.start()
        notifier._receivers[0].offer(flow, {"verdict": AWAY})
        until(lambda: webhook.tried > tried, "it is sent")
        notifier.stop()

    assert seen() == ([], [])
    webhook.answers = [400, 400]
    tell(FLOW)
    tell(FLOW)
    events, [detail] = seen()
    assert events == [("notify failed: receiver ops", True)], "one event, however often"
    assert "a message of east->central (verdict) was left out: it answers 400 Bad Request" in detail
    other = Mirror(loads(settings.replace("name: ops", "name: new")), display=lambda: None)
    assert len(other.events("1h")) == 0, "nothing would end it for a receiver that is gone"
    tell(FLOW)
    assert seen() == ([("notify failed: receiver ops", False)], [])


@pytest.mark.parametrize("code", [401, 403, 408, 429, 503])
def test_a_code_that_tells_of_the_receiver_is_tried_again(webhook: Webhook, code: int) -> None:
    webhook.answers = [code]
    with telling(config()) as told:
        told.receiver.offer(FLOW, {"verdict": AWAY})
        until(lambda: told.rows, "it is sent in the end")
    assert (webhook.tried, len(webhook.bodies)) == (2, 1)


def test_a_receiver_that_hangs_costs_the_mirror_nothing_and_no_memory(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(receiver_module, "_GRACE_S", 0.2)
    webhook.goes_on.clear()
    with telling(config()) as told:
        began = time.monotonic()
        for n in range(10_000):
            told.receiver.offer(FLOW, {"verdict": AWAY if n % 2 else WELL})
        assert time.monotonic() - began < 2, "nobody waits for the receiver"
        assert len(told.receiver._flows) == 1
        until(lambda: webhook.tried >= 2, "a message that hangs is given up, and tried again")
        webhook.goes_on.set()
        until(lambda: told.rows and told.rows[-1][1] == {"verdict": "CLUSTER_AWAY"}, "it is told when it is back")
        webhook.goes_on.clear()
        told.receiver.offer("other", {"verdict": AWAY})
        began = time.monotonic()
    assert time.monotonic() - began < 2, "nor does the end of a run"


def test_many_receivers_that_hang_end_together(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "_GRACE_S", 0.5)
    webhook.goes_on.clear()
    with ExitStack() as stack:
        told = [stack.enter_context(telling(config(name=f"hook {n}"))) for n in range(10)]
        for one in told:
            one.receiver.offer(FLOW, {"verdict": AWAY})
        until(lambda: webhook.tried == 10, "each has a message under way")
        began = time.monotonic()
        stop_all([one.receiver for one in told])
        assert 0.4 < time.monotonic() - began < 1.5
        webhook.goes_on.set()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("file:///etc/s3cret", "the value (hidden) is not an address"),
        ("http://127.0.0.1:1/s3cret", "Connection refused"),
        ("http://127.0.0.1:s3cret/", "it cannot be called (InvalidURL)"),
        ("http://[s3cret", "it cannot be called (ValueError)"),
    ],
)
def test_no_secret_is_in_a_message_in_the_log_or_in_settings_that_are_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, address: str, problem: str
) -> None:
    monkeypatch.setenv("HOOK", address)
    with caplog.at_level(logging.DEBUG), telling(config()) as told:
        told.receiver.offer(FLOW, {"verdict": AWAY})
        until(lambda: caplog.records, "the failure is logged")
    assert "s3cret" not in caplog.text
    said = send(config(), notice())
    assert problem in said
    assert "s3cret" not in said + repr(config())


def test_a_server_that_quotes_the_address_in_its_reason_shows_no_secret(
    webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    webhook.reason = "Not Found: /services/T0/s3cret"
    webhook.answers = [404, 500, 404]
    assert send(config(), notice()) == "it answers 404 Not Found"
    assert try_receiver(config(), at=NOON, mirror="m", host="h") == "it answers 500 Internal Server Error"
    with caplog.at_level(logging.DEBUG), telling(config()) as told:
        told.receiver.offer(FLOW, {"verdict": AWAY})
        until(lambda: caplog.records, "the failure is logged")
    assert "s3cret" not in caplog.text


def test_the_address_and_the_key_are_sent_nowhere_but_to_their_owner(webhook: Webhook) -> None:
    for template in ("json", "slack", "pagerduty"):
        assert send(config(template), notice()) == ""
    text = json.dumps(webhook.bodies)
    assert "s3cret" not in text
    assert text.count("r0uting-key") == 1, "PagerDuty's own field"


@pytest.mark.parametrize(
    ("receivers", "problem"),
    [
        ("[{url: 'https://hooks.example/s3cret'}]", "the value (hidden) stands in the file"),
        ("[{template: pagerduty}]", "PagerDuty needs it"),
        ("[{template: slack}]", "there is no address"),
        ("[{url: '${env:A}'}, {url: '${env:B}'}]", "a second receiver 'json'"),
        ("[{url: '${env:A}', flows: [east->centra]}]", "there is no flow 'east->centra'"),
        ("[{url: '${env:A}', on: [all]}]", "on"),
        ("[{url: '${env:A}', min_interval: 0s}]", "flaps"),
    ],
)
def test_settings_that_cannot_work_are_refused_without_showing_a_secret(receivers: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loads(f"{SETTINGS}notify: {receivers}\n")
    assert problem in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_receivers_are_read_from_settings_and_change_nothing_that_is_applied() -> None:
    from mirrorlake.config import identity, plain

    told = loads(f"{SETTINGS}notify: [{{template: slack, url: '${{env:HOOK}}', min_interval: 30s}}]\n")
    [one] = told.notify
    assert (one.title, one.min_interval, len(one.on)) == ("slack", timedelta(seconds=30), 5)
    assert identity(plain(told)) == identity(plain(loads(SETTINGS)))
