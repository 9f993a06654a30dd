"""A flow whose `policy` was changed: the new remote topic begins at the flow's start, and each one holds every record once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.processes import Process, wait_until
from tests.kit.records import (
    address_of,
    assert_equal_topics,
    commit,
    committed,
    consume,
    count,
    create_topic,
    delete_topic,
    new_topic,
    produce,
    topics_of,
)


class Renamed:
    """A flow from east to central of one topic, which has 10 records, in a settings file that is written again for each policy."""

    def __init__(self, east: KafkaCluster, central: KafkaCluster, folder: Path, **flow: Any) -> None:
        self.east, self.central, self.folder = east, central, folder
        self.topic = new_topic(east, 10)
        self.flow = {"name": f"f-{self.topic}", "source": "east", "target": "central", "topics": self.topic, **flow}

    def name(self, policy: str) -> str:
        return f"{policy}.{self.topic}"

    def write(self, policy: str, *, lake: str = "lake") -> str:
        """Write the settings file; return its name as the option of a command."""
        addresses = {"east": address_of(self.east), "central": address_of(self.central)}
        flow = {**self.flow, "policy": {"template": f"{policy}.{{topic}}"}}
        return f"--conf={write_conf(self.folder, addresses, [flow], lake={'root': str(self.folder / lake)})}"

    def mirror(self, policy: str, *, lake: str = "lake") -> str:
        conf = self.write(policy, lake=lake)
        assert run_cli("run", "--once", conf).returncode == 0
        return conf

    def holds(self, policy: str) -> int:
        return count(self.central, self.name(policy))

    def assert_whole(self, policy: str) -> None:
        assert_equal_topics(consume(self.east, self.topic), consume(self.central, self.name(policy)))


def words(text: str) -> str:
    return " ".join(text.split())


def verified(conf: str) -> list[tuple[bool, int, int]]:
    """Whether each flow is equal, and how many records were and were not compared."""
    return [(one["equal"], one["verified"], one["not_compared"]) for one in told("verify", conf)["flows"]]


@pytest.mark.law("A", "D", "E", "F")
@pytest.mark.parametrize("lake", ["lake", "another"])
def test_law_e_another_name_gets_everything_and_the_one_before_stays_and_is_gone_on_in(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path, lake: str
) -> None:
    flow = Renamed(east, central, tmp_path)
    flow.mirror("old")
    flow.assert_whole("old")
    produce(east, flow.topic, 6, seed=2)
    commit(east, f"g-{flow.topic}", flow.topic, {0: 2, 1: 0})

    conf = flow.write("new", lake=lake)
    said = words(run_cli("plan", conf).stdout)
    begins = f"{flow.topic} goes to {flow.name('new')} from now on, from its first record"
    [status] = told("status", conf)["flows"]
    flow.mirror("new", lake=lake)
    flow.assert_whole("new")
    assert sum(one["offset_lag"] for one in status["partitions"]) == 16, "nothing was under the new name"
    assert flow.holds("old") == 10
    assert verified(conf) == [(True, 16, 0)]
    assert f"topic {flow.name('old')} is left as it is: {begins}" in said, "law G: the plan does not say it"
    assert flow.name("old") not in words(run_cli("plan", conf).stdout)
    assert run_cli("groups", f"--flow={flow.flow['name']}", "--apply", conf).returncode == 0
    unread = {p: consume(central, flow.name("new"))[p][at].offset for p, at in ((0, 2), (1, 0))}
    told_to = committed(central, f"g-{flow.topic}", flow.name("new"), 2)
    assert told_to == unread, "law A: a group would miss records that it has not read"

    produce(east, flow.topic, 4, seed=3)
    conf = flow.write("old", lake=lake)
    assert f"{flow.topic} goes to {flow.name('old')} from now on, from where it ended there" in words(
        run_cli("plan", conf).stdout
    )
    flow.mirror("old", lake=lake)
    flow.assert_whole("old")
    assert flow.holds("new") == 16
    assert verified(conf) == [(True, 20, 0)]
    flow.mirror("new", lake=lake)
    flow.assert_whole("new")
    assert verified(flow.write("new", lake=lake)) == [(True, 20, 0)]


@pytest.mark.law("E", "F")
def test_law_f_a_name_that_counts_again_waits_where_its_topic_was_lost(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    flow = Renamed(east, central, tmp_path)
    for policy in ("old", "new"):
        flow.mirror(policy)
    delete_topic(central, flow.name("old"))
    done = run_cli("run", "--once", flow.write("old"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"{flow.name('old')} was deleted on central" in words(done.stdout + done.stderr)
    assert flow.name("old") not in topics_of(central), "law F: it was made again without a choice"
    flow.mirror("new")
    assert flow.holds("new") == 10


@pytest.mark.law("E", "F")
def test_law_f_a_restored_ledger_counts_each_name_for_itself(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    rules = [{"name": "some", "keep": "key NOT IN ('1', '2', '3')"}]
    flow = Renamed(east, central, tmp_path, placement={"by": "key", "count": 3}, rules=rules)
    flow.mirror("old")
    sent = flow.holds("old")
    conf = flow.write("new")
    delete_topic(central, f"mirrorlake.{flow.flow['name']}.ledger")
    assert run_cli("run", "--once", conf).returncode == 3
    assert run_cli("republish", f"--flow={flow.flow['name']}", "--once", "--restore-ledger", conf).returncode == 0
    assert (flow.holds("old"), flow.holds("new")) == (sent, sent), "law E: positions of another topic were restored"
    flow.mirror("old")
    assert (flow.holds("old"), flow.holds("new")) == (sent, sent), "law F: sent twice under one name"
    assert [one[::2] for one in verified(flow.write("old"))] == [(True, 0)]


@pytest.mark.law("E", "F")
@pytest.mark.parametrize("execution", ["live", "streaming"])
def test_law_e_a_running_mirror_that_adopts_another_policy_begins_its_topic_at_the_start(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path, execution: str
) -> None:
    flow = Renamed(east, central, tmp_path, execution=execution, lanes=3)
    conf = flow.write("old")
    assert run_cli("apply", conf).returncode == 0
    process = Process(tmp_path / "log", "run", conf)
    try:
        for policy, records in (("old", 10), ("new", 12), ("old", 14)):
            assert run_cli("apply", flow.write(policy)).returncode == 0
            wait_until(lambda p=policy, n=records: flow.holds(p) >= n, f"{policy} has {records} records")  # type: ignore[misc]
            flow.assert_whole(policy)
            produce(east, flow.topic, 2, seed=records)
        assert process.is_running, process.output
    finally:
        process.terminate()
    flow.mirror("new")
    flow.assert_whole("new")


@pytest.mark.law("F")
@pytest.mark.parametrize("point", ["send.claimed", "send.committed"])
def test_law_f_a_death_at_the_first_claim_or_record_under_another_policy_costs_neither_topic_a_record(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path, point: str
) -> None:
    flow = Renamed(east, central, tmp_path)
    flow.mirror("old")
    process = Process(tmp_path / "log", "run", "--once", flow.write("new"), MIRRORLAKE_DIE_AT=point)
    wait_until(lambda: not process.is_running, "it died")
    assert process.terminate() == -9, process.output
    produce(east, flow.topic, 2, seed=2)
    for policy in ("old", "new"):
        flow.mirror(policy)
        flow.assert_whole(policy)
    assert [flow.holds(policy) for policy in ("old", "new")] == [12, 12]


@pytest.mark.law("E", "F")
def test_law_e_a_ledger_that_counts_lives_of_a_topic_that_a_new_lake_does_not_know_is_refused(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    flow = Renamed(east, central, tmp_path)
    flow.mirror("old")
    delete_topic(east, flow.topic)
    create_topic(east, flow.topic, 2)
    produce(east, flow.topic, 6, seed=2)
    flow.mirror("old")
    produce(east, flow.topic, 3, seed=3)
    conf = flow.write("old", lake="another")
    done = run_cli("run", "--once", conf)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"knows generation 2 of {flow.topic}, but the newest in this lake is 1" in words(done.stdout + done.stderr)
    assert flow.holds("old") == 16, "law F: it sent what the lake before had sent"
    flow.flow["name"] += "-again"
    flow.mirror("new", lake="another")
    flow.assert_whole("new")
