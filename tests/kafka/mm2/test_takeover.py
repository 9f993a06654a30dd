"""Where a MirrorMaker 2 ended, told from its stored offsets and the records on the target; a real one is in `tests/flow`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from mirrorlake.config.loading import loads
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.context import Context, utc_now
from mirrorlake.kafka.lane.ledger_reader import ledger_spec
from mirrorlake.mm2.survey import OtherMirror
from mirrorlake.mm2.takeover import TakeoverPlan, make_takeover_plan
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.mm2 import SourceOffset, source_offsets_topic
from mirrorlake.model.plan import TopicSpec
from mirrorlake.sandbox import KafkaCluster
from tests.builders import ledger_record
from tests.kit.processes import wait_until
from tests.kit.records import open_transaction, send

# Older records would fall to the brokers' retention at once.
NOW = int(time.time() * 1000)
STILL = OtherMirror(watch_s=0.0)


class Site:
    """A source and a target, and what a MirrorMaker 2 left on them."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.servers = {"east": source.bootstrap_servers, "central": target.bootstrap_servers}
        self.context = Context(self.config("orders"), spark=None, now=utc_now, display=lambda: None)

    def config(self, topics: str, **settings: object) -> MirrorConfig:
        clusters = {alias: {"bootstrap_servers": address} for alias, address in self.servers.items()}
        entry = {"source": "east", "target": "central", "topics": topics, **settings}
        return loads(json.dumps({"lake": {"root": "x"}, "clusters": clusters, "flows": [entry]}))

    def flow(self, topics: str, **settings: object) -> FlowConfig:
        return self.config(topics, **settings).flows[0]

    def plan(self, flow: FlowConfig, *, other: OtherMirror | None = STILL, **options: bool) -> TakeoverPlan:
        return make_takeover_plan(self.context, flow, other=other, **options)

    def put(self, alias: str, topic: str, *records: tuple[bytes | None, bytes | None], partitions: int = 1) -> None:
        self.context.admin(alias).create(TopicSpec(name=topic, partitions=partitions))
        send(self.servers[alias], topic, [{"value": v, "key": k, "partition": 0, "timestamp": NOW} for k, v in records])


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with (
        KafkaCluster("east") as source,
        KafkaCluster("central") as target,
    ):
        yield Site(source, target)


def stored(site: Site, topic: str, offset: int | None, *, cluster: str = "east", partition: int = 0) -> None:
    """Store an offset as Connect does."""
    record = SourceOffset("MirrorSourceConnector", cluster, topic, partition, offset)
    site.put("central", source_offsets_topic("east"), (record.key(), record.value()))


def letters(text: str) -> list[tuple[bytes, bytes]]:
    return [(letter.encode(), letter.encode()) for letter in text]


@pytest.mark.law("F")
def test_what_cannot_be_told_is_refused_with_the_reason(site: Site) -> None:
    site.put("east", "letters", *letters("abcdef"))
    stored(site, "letters", 2)
    flow = site.flow("letters")
    assert "there is no east.letters-0" in str(site.plan(flow).refused)
    site.put("central", "east.letters", *letters("abcx"))
    assert "records that the source does not have there" in str(site.plan(flow).refused)
    trusted = site.plan(flow, trust_stored=True)
    assert not trusted.refused
    assert [row.position for row in trusted.partitions] == [3]


@pytest.mark.law("F")
def test_stored_offsets_that_no_longer_fit_the_source_are_refused(site: Site) -> None:
    site.put("east", "recreated", *letters("ab"))
    site.put("central", "east.recreated", *letters("ab"))
    stored(site, "recreated", 99)
    assert "was the topic recreated?" in str(site.plan(site.flow("recreated"), trust_stored=True).refused)


@pytest.mark.law("F")
def test_a_tombstone_means_that_nothing_is_stored(site: Site) -> None:
    site.put("east", "forgotten", *letters("abcd"))
    site.put("central", "east.forgotten", *letters("abc"))
    stored(site, "forgotten", 1)
    stored(site, "forgotten", None)
    stored(site, "elsewhere", 1)
    [row] = site.plan(site.flow("forgotten")).partitions
    assert (row.stored, row.position, row.already_there) == (None, 3, 3)


def test_malformed_offsets_are_stepped_over_and_named(site: Site) -> None:
    site.put("east", "sound", *letters("ab"))
    site.put("central", "east.sound", *letters("a"))
    site.put("central", source_offsets_topic("east"), (b"nonsense", b"{}"))
    stored(site, "sound", 0)
    plan = site.plan(site.flow("sound"))
    assert not plan.refused
    assert [note for note in plan.notes if "skipped mm2-offsets.east.internal-0@" in note and "not JSON" in note]


@pytest.mark.law("F")
def test_an_open_transaction_on_the_target_is_waited_for(site: Site) -> None:
    site.put("east", "open", *letters("ab"))
    site.put("central", "east.open", *letters("a"))
    stored(site, "open", 0)
    with open_transaction(site.servers["central"], "east.open", **{"transactional.id": "connect-cluster-east-mm2"}):
        assert "a transaction is open on east.open-0" in str(site.plan(site.flow("open")).refused)
    # The coordinator answers before it has written the transaction's end into the log.
    plan = wait_until(lambda: not (found := site.plan(site.flow("open"))).refused and found, "the transaction is over")
    [row] = plan.partitions
    assert (row.refused, row.position) == ("", 1), "what was aborted is not there"


@pytest.mark.law("F")
def test_a_flow_that_has_begun_is_refused(site: Site) -> None:
    site.put("east", "begun", *letters("ab"))
    site.put("central", "east.begun", *letters("a"))
    stored(site, "begun", 0)
    flow = site.flow("begun", name="begun")
    record = ledger_record(flow="begun", positions={SourcePartition("begun", 1, 0): 1})
    site.context.admin("central").create(ledger_spec(flow.ledger_topic, 1))
    send(site.servers["central"], flow.ledger_topic, [(record.to_json(), b"0", 0)])
    assert "the flow has begun already" in str(site.plan(flow).refused)


@pytest.mark.parametrize(
    ("settings", "other", "reason"),
    [
        ({"start": "latest"}, STILL, "set earliest"),
        ({}, OtherMirror(watch_s=0, offsets_topic="connect-offsets"), "no topic connect-offsets: name Connect's"),
        ({}, OtherMirror(watch_s=0, connector="mine"), "holds no offsets of mine for topics of east->central"),
    ],
)
def test_what_was_named_wrong_is_refused(site: Site, settings: dict[str, str], other: OtherMirror, reason: str) -> None:
    site.put("east", "named")
    stored(site, "named", None)
    assert reason in str(site.plan(site.flow("named", **settings), other=other).refused)
