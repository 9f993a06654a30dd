"""Consumer groups of two languages carry on at the target: what they read there is exactly what they had not read at the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer

from mirrorlake import Mirror
from mirrorlake.errors import UsageError
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import told
from tests.kit.java import CONSUMER, java
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import (
    ABORTED,
    Record,
    Where,
    address_of,
    commit,
    committed,
    consume,
    create_topic,
    delete_records,
    delete_topic,
    end_of,
    produce,
    send,
    send_transactions,
    topic_name,
    topics_of,
)
from tests.servers.lakes import MakeMirror, Pair

FLOW = "east->central"
# The flow of the tests that share a lake.
SHARED = "shared"


@contextmanager
def member(
    where: Where, group: str, topic: str, *, expected: int, **extra: Any
) -> Iterator[dict[int, list[bytes | None]]]:
    """Be a live member of a group that has read `expected` records, and each partition to its end; give them by partition."""
    options = {
        "bootstrap.servers": address_of(where),
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    # A position that was not kept would read everything from the start.
    consumer = Consumer({**options, "auto.offset.reset": "earliest", **extra})
    consumer.subscribe([topic])
    read: dict[int, list[bytes | None]] = {}
    ended: set[int] = set()

    def has_read() -> bool:
        for message in consumer.consume(20_000, timeout=0.2):
            if message.error() is None:
                read.setdefault(message.partition(), []).append(message.value())
            else:
                assert message.error().name() == "_PARTITION_EOF", f"{group}: {message.error()}"
                ended.add(message.partition())
        assigned = {place.partition for place in consumer.assignment()}
        return bool(assigned) and assigned <= ended and sum(map(len, read.values())) >= expected

    wait_until(has_read, f"group {group} read {expected} records")
    try:
        yield read
        if "group.protocol" in extra and read:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def unread(records: dict[int, list[Record]], positions: dict[int, int]) -> dict[int, list[bytes | None]]:
    return {p: [r.value for r in found if r.offset >= positions.get(p, 0)] for p, found in records.items()}


def transactions(where: Where, topic: str, count: int, *, every: int, partitions: int = 2) -> None:
    """Write transactions of `every` records a partition, every third aborted."""

    def transaction(number: int) -> tuple[list[tuple[bytes, bytes, int]], bool]:
        size = every * partitions
        names = [str(n).encode() for n in range(number * size, (number + 1) * size)]
        is_aborted = number % 3 == 2
        return [((ABORTED if is_aborted else b"") + n, n, int(n) % partitions) for n in names], not is_aborted

    send_transactions(where, topic, map(transaction, range(count)))


def by_partition(mirror: Mirror, group: str) -> dict[int, Any]:
    return {p.resume.source.partition: p for p in mirror[SHARED].groups() if p.group == group}


@pytest.fixture(scope="module")
def topics(request: pytest.FixtureRequest, east: KafkaCluster) -> list[str]:
    """Topics of 2 partitions with transactions and aborted records: one for each test of this file that wants one."""
    tests = [item for item in request.session.items if item.path == request.path]
    count = sum("shared" in getattr(item, "fixturenames", ()) for item in tests)
    prefix = topic_name("orders")
    made = [f"{prefix}-{number}" for number in range(count)]
    for topic in made:
        create_topic(east, topic, 2)
        transactions(east, topic, 30, every=7)
    return made


@pytest.fixture(scope="module")
def mirror_for(
    topics: list[str], east: KafkaCluster, central: KafkaCluster, make_shared_mirror: MakeMirror
) -> Callable[..., Mirror]:
    """Mirror all of the topics in one run; return what makes the mirror with one test's settings of the same flow."""
    prefix = topics[0].rpartition("-")[0]
    flow = {"name": SHARED, "source": "east", "target": "central", "topics": f"{prefix}-.*", "groups": "none"}

    def make(**settings: Any) -> Mirror:
        return make_shared_mirror({"east": east, "central": central}, [{**flow, "sync": {"groups": False}, **settings}])

    make().run(once=True)
    return make


class Shared(NamedTuple):
    """A mirrored topic and a group that no other test uses, on the lake of this file."""

    mirror: Mirror
    topic: str
    group: str
    east: KafkaCluster
    central: KafkaCluster


@pytest.fixture
def shared(mirror_for: Callable[..., Mirror], topics: list[str], east: KafkaCluster, central: KafkaCluster) -> Shared:
    group = topic_name("billing")
    return Shared(mirror_for(groups=f"{group}.*"), topics.pop(), group, east, central)


@pytest.mark.law("A")
def test_law_a_every_position_is_exact(shared: Shared) -> None:
    mirror, topic, group, east, central = shared
    source, target = consume(east, topic), consume(central, f"east.{topic}")
    tip = end_of(east, topic, 0)
    for offset in range(tip + 1):
        commit(east, f"{group}-{offset}", topic, {0: offset})
    plan = {p.group: p for p in mirror[SHARED].groups()}
    assert len(plan) == tip + 1, "every group is in the plan"
    for offset in range(tip + 1):
        found = plan[f"{group}-{offset}"]
        assert found.action == "move", f"{found}"
        assert found.resume.exact, f"{found}"
        reads = [r.value for r in target[0] if r.offset >= (found.resume.downstream_offset or 0)]
        assert reads == [r.value for r in source[0] if r.offset >= offset], f"law A: {found}"


@pytest.mark.law("A", "G")
def test_law_a_groups_are_moved_once_and_go_on_exactly(shared: Shared) -> None:
    mirror, topic, group, east, central = shared
    positions = {0: 40, 1: 95}
    commit(east, group, topic, positions, metadata="left by billing")
    commit(east, f"{group}-half", topic, {1: 3})
    began = datetime.now(timezone.utc)
    done = mirror[SHARED].apply_groups()
    ended = datetime.now(timezone.utc)
    assert len(done.moves) == 3, str(done)
    again = mirror[SHARED].apply_groups()
    assert [p.action for p in again] == ["in_step"] * 3, f"law G: applied twice it changes nothing: {again}"
    assert committed(central, f"{group}-half", f"east.{topic}", 2).keys() == {1}
    wanted = unread(consume(east, topic), positions)
    total = sum(map(len, wanted.values()))
    with member(central, group, f"east.{topic}", expected=total) as read:
        assert read == wanted, "law A: none skipped, none twice, in order"
    rows = mirror.query("SELECT target_partition FROM checkpoints WHERE group_id LIKE :mine", mine=f"{group}%")
    assert len(rows) == 3
    [event] = [one for one in mirror.events(began, flow=SHARED) if one.kind == "groups moved"]
    assert ("@" in event.who, event.cluster, began <= event.at <= ended) == (True, "central", True)
    assert sorted(event.effect.split(", ")) == [f"move group {name}" for name in (group, f"{group}-half")]


@pytest.mark.law("A", "G")
def test_law_g_only_the_chosen_groups_move_and_only_as_they_were_shown(shared: Shared) -> None:
    mirror, topic, group, east, central = shared
    remote, other, rewound = f"east.{topic}", f"{group}-other", f"{group}-rewound"
    for name in (group, other, rewound):
        commit(east, name, topic, {0: 40})
    shown = mirror.plan_groups(SHARED, groups=[group, rewound])
    assert shown.groups == (group, rewound)
    with pytest.raises(UsageError, match="unheard-of"):
        mirror.apply_groups(SHARED, groups=[group, "unheard-of"])
    assert committed(central, group, remote, 2) == {}, "a name that is not there, and nothing is set"

    commit(east, group, topic, {0: 80})
    commit(east, rewound, topic, {0: 10})
    with member(east, other, topic, expected=0):
        before = {one.group: one for one in mirror.group_standing(SHARED).groups}
    done = {one.group: one for one in mirror.apply_groups(SHARED, plan=shown)}
    [there] = [one.resume.downstream_offset for one in shown if one.group == group]
    assert done.keys() == {group, rewound}
    assert committed(central, group, remote, 2) == {0: there}, "law G: where it was shown to go"
    assert (done[rewound].action, "went back" in done[rewound].reason) == ("hold", True), "law A"
    assert committed(central, rewound, remote, 2) == committed(central, other, remote, 2) == {}

    assert (before[other].source.state, len(before[other].source.members)) == ("stable", 1)
    assert before[other].source.members[0].partitions == 2
    assert (before[group].target.state, before[group].target.lag) == ("absent", None)
    after = {one.group: one for one in mirror.group_standing(SHARED).groups}
    assert after[group].source.lag == end_of(east, topic, 0) - 80
    assert after[group].target.lag == end_of(central, remote, 0) - (there or 0)
    assert (after[group].target.state, after[group].target.members) == ("empty", ())


@pytest.mark.law("A")
def test_law_a_what_must_not_be_moved_is_held_back_with_its_reason(shared: Shared) -> None:
    mirror, topic, group, east, central = shared
    remote = f"east.{topic}"
    commit(east, group, topic, {0: 20, 1: 20})
    mirror[SHARED].apply_groups()
    moved = committed(central, group, remote, 2)
    commit(central, group, remote, {0: moved[0] + 30})
    found = by_partition(mirror, group)
    assert found[0].action == "hold"
    assert "never moved back" in found[0].reason
    assert found[1].action == "in_step"
    commit(east, group, topic, {1: 60})
    with member(central, group, remote, expected=0):
        done = mirror[SHARED].apply_groups()
        assert {p.action for p in done} == {"hold"}
        assert any("has members" in p.reason for p in done)
    assert by_partition(mirror, group)[1].action == "move"


@pytest.mark.law("A")
def test_law_a_groups_ahead_wait_and_go_on_later(shared: Shared) -> None:
    mirror, topic, group, east, central = shared
    produce(east, topic, 100, seed=5)
    ends = {p: records[-1].offset + 1 for p, records in consume(east, topic).items()}
    commit(east, group, topic, ends)
    waiting = by_partition(mirror, group)
    assert all("waits at the last republished position" in p.reason for p in waiting.values())
    assert not any(p.resume.exact for p in waiting.values())
    mirror.land("east", once=True)
    assert [p.resume.records_again for p in by_partition(mirror, group).values()] == [50, 50]
    mirror.republish(SHARED, once=True)
    after = by_partition(mirror, group)
    target = consume(central, f"east.{topic}")
    assert all(p.resume.exact for p in after.values())
    assert {n: p.resume.downstream_offset for n, p in after.items()} == {n: r[-1].offset + 1 for n, r in target.items()}


@pytest.mark.law("A")
def test_law_a_groups_before_the_first_record_and_on_empty_partitions(pair: Pair) -> None:
    group = topic_name("billing")
    pair.create(partitions=3)
    pair.produce(100, partitions=2)
    delete_records(pair.east, pair.topic, 0, 20)
    mirror = pair.mirror(groups=f"{group}.*")
    commit(pair.east, group, pair.topic, {0: 5, 1: 0, 2: 0})
    mirror.run(once=True)
    # --once keeps groups in step: before what retention left, at the start, on an empty partition.
    assert committed(pair.central, group, pair.remote, 3) == {0: 0, 1: 0, 2: 0}


@pytest.mark.law("A")
def test_law_a_a_flow_that_left_the_past_out_holds_back_who_has_not_read_it(pair: Pair) -> None:
    group = topic_name("billing")
    pair.create(50, partitions=1)
    mirror = pair.mirror(groups=f"{group}.*", start="latest")
    mirror.run(once=True)
    commit(pair.east, group, pair.topic, {0: 10})
    mirror.run(once=True)
    assert pair.remote in topics_of(pair.central)
    assert committed(pair.central, group, pair.remote, 1) == {}, "law A: what it has not read never comes, sent or not"
    pair.produce(50, seed=2)
    mirror.run(once=True)
    commit(pair.east, f"{group}-tip", pair.topic, {0: 70})
    found = {p.group: p for p in mirror[FLOW].groups()}
    assert found[group].action == "hold"
    assert "never republished" in found[group].reason
    assert found[f"{group}-tip"].resume.downstream_offset == 20


@pytest.mark.law("A")
def test_law_a_positions_kept_outside_of_kafka_come_back_in_their_shape(shared: Shared, tmp_path: Path) -> None:
    mirror, topic, _, east, central = shared
    offsets = mirror[SHARED].offsets
    checkpoint = tmp_path / "query"
    reader = mirror.spark.readStream.format("kafka").option("kafka.bootstrap.servers", east.bootstrap_servers)
    stream = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    target = consume(central, f"east.{topic}")
    ends = {str(p): records[-1].offset + 1 for p, records in target.items()}
    assert offsets.move_spark_query(str(checkpoint)).document == {f"east.{topic}": ends}
    some = offsets.move_positions({topic: {"0": 10, "1": -2}})
    assert some.document == {f"east.{topic}": {"0": 9, "1": -2}}, "one marker stands before offset 10"
    rows = offsets.move_positions([{"topic": topic, "partition": 1, "offset": 0}])
    assert rows.document == [{"topic": f"east.{topic}", "partition": 1, "offset": 0}]
    for wrong in ({"unheard": {"0": 1}}, {topic: 3}, [{"topic": topic}], 7):
        with pytest.raises(UsageError):
            offsets.move_positions(wrong)
    with pytest.raises(UsageError, match="no finished batch"):
        offsets.move_spark_query(str(tmp_path / "nothing"))


@pytest.mark.law("A")
def test_law_a_groups_of_the_new_protocol_are_groups_too(shared: Shared) -> None:
    """KIP-848: the coordinator assigns; read on the source while it has members, never moved while it has some there."""
    mirror, topic, group, east, central = shared
    new = {"group.protocol": "consumer"}
    with member(east, group, topic, expected=100, **new):
        assert not len(mirror[SHARED].groups()), "nothing is committed yet"
    found = by_partition(mirror, group)
    assert found
    assert all(p.action == "move" and p.resume.exact for p in found.values())
    with member(central, group, f"east.{topic}", expected=0, **new):
        assert all("has members" in p.reason for p in by_partition(mirror, group).values())


@pytest.mark.law("A")
def test_law_a_the_map_stays_exact_when_both_clusters_have_deleted_the_records(shared: Shared) -> None:
    mirror, topic, group, east, central = shared
    remote = f"east.{topic}"
    source, target = consume(east, topic), consume(central, remote)
    for partition in (0, 1):
        delete_records(east, topic, partition, source[partition][-1].offset)
        delete_records(central, remote, partition, target[partition][-1].offset)
    rows = [(topic, partition, record.offset) for partition, records in source.items() for record in records]
    asked = mirror.spark.createDataFrame(rows, "topic string, partition int, offset bigint")
    found = mirror[SHARED].offsets.translate_table(asked).collect()
    placed = {(row.partition, row.offset): row.downstream_offset for row in found}
    for partition, records in source.items():
        assert [placed[partition, r.offset] for r in records] == [r.offset for r in target[partition]]
    commit(east, group, topic, {0: 3})
    [behind] = mirror[SHARED].groups()
    assert behind.resume.exact, "the consumer goes on where retention left it, here as there"


@pytest.mark.law("A")
def test_law_a_a_flow_that_stays_on_keeps_its_groups_in_step(shared: Shared, mirror_for: Callable[..., Mirror]) -> None:
    _, topic, group, east, central = shared
    mirror = mirror_for(groups=f"{group}.*", sync={"groups_interval": "1s"})
    with staying_on(mirror) as failures:
        produce(east, topic, 100, seed=9)
        ends = {p: records[-1].offset + 1 for p, records in consume(east, topic).items()}
        commit(east, group, topic, ends)

        def is_in_step() -> bool:
            target = consume(central, f"east.{topic}")
            due = {p: records[-1].offset + 1 for p, records in target.items()}
            return bool(failures) or (
                sum(map(len, target.values())) == 140 * 2 + 100 and committed(central, group, f"east.{topic}", 2) == due
            )

        wait_until(is_in_step, "the group stands at the end of the remote topic")


def test_the_sql_of_the_docs_runs(shared: Shared) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    statements = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(statements) >= 5
    for statement in statements:
        shared.mirror.sql(re.sub(r"\bFROM relay\b", "FROM relay_east", statement)).collect()


@pytest.mark.law("A")
def test_law_a_groups_of_a_deleted_topic_are_nobody_s_trouble(shared: Shared) -> None:
    mirror, topic, group, east, central = shared
    commit(east, group, topic, {0: 30})
    mirror[SHARED].apply_groups()
    delete_topic(east, topic)
    assert not len(mirror[SHARED].groups())
    assert committed(central, group, f"east.{topic}", 2).keys() == {0}, "what was moved stays"


# Of the groups of a source that is killed: how many records each still has to read.
PARTITIONS, PLAIN, TRANSACTIONS, EACH = 4, 4_000, 12, 200
UNREAD = {"at-the-tip": 0, "a-hundred": 100, "half": 3_000, "nearly-all": 5_600}


def fill(where: Where, topic: str) -> dict[int, list[tuple[int, bytes]]]:
    """Write plain records and then transactions, every sixth aborted; return offset and value of what counts."""
    written: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(PARTITIONS)}
    options = {"linger.ms": 20, "compression.type": "lz4"}
    for number in range(PLAIN):
        written[number % PARTITIONS].append((number // PARTITIONS, b"%d" % number))
    plain = ((b"%d" % number, None, number % PARTITIONS) for number in range(PLAIN))
    send(where, topic, plain, **options, **{"enable.idempotence": True})

    def transaction(count: int) -> tuple[list[tuple[bytes, None, int]], bool]:
        is_aborted = count % 6 == 5
        # Each transaction leaves a marker after its records in every partition.
        first = PLAIN // PARTITIONS + count * (EACH // PARTITIONS + 1)
        values = [b"%s%d-%d" % (ABORTED if is_aborted else b"", count, number) for number in range(EACH)]
        for number, value in enumerate(() if is_aborted else values):
            written[number % PARTITIONS].append((first + number // PARTITIONS, value))
        return [(value, None, number % PARTITIONS) for number, value in enumerate(values)], not is_aborted

    send_transactions(where, topic, map(transaction, range(TRANSACTIONS)), **options)
    return written


@pytest.mark.law("A")
def test_law_a_five_groups_carry_on_when_the_source_is_gone(
    make_cluster: Callable[..., KafkaCluster], central: KafkaCluster, make_mirror: MakeMirror, tmp_path: Path
) -> None:
    source = make_cluster("east").start()
    tag = topic_name()
    topic, java_group = f"orders-{tag}", f"java-{tag}"
    create_topic(source, topic, PARTITIONS)
    written = fill(source, topic)
    groups = {f"{one}-{tag}": unread // PARTITIONS for one, unread in UNREAD.items()}
    for group, left in groups.items():
        at = {p: records[-left][0] if left else end_of(source, topic, p) for p, records in written.items()}
        commit(source, group, topic, at)

    def of_java(where: KafkaCluster, name: str, *more: object) -> list[str]:
        begin = ("--bootstrap-server", where.bootstrap_servers, "--topic", name, "--group", java_group)
        return java(CONSUMER, *begin, "--isolation-level", "read_committed", *map(str, more), check=False).split()

    assert len(of_java(source, topic, "--from-beginning", "--max-messages", 1_000)) == 1_000
    reached = {group: committed(source, group, topic, PARTITIONS) for group in (*groups, java_group)}

    # The shared target has ledgers of other tests' flows from the shared source.
    name = f"five-{tag}"
    flow = {"name": name, "source": "east", "target": "central", "topics": "orders-.*", "groups": f".*-{tag}"}
    mirror = make_mirror({"east": source, "central": central}, [flow])
    mirror.run(once=True)
    plan = mirror[name].groups()
    assert {p.group for p in plan} == {*groups, java_group}
    assert all(p.action == "in_step" and p.resume.exact for p in plan), f"--once keeps groups in step:\n{plan}"
    source.kill()
    conf = str(tmp_path / "mirror.yml")
    recorded = told("groups", "--flow", name, "--recorded", "--conf", conf)["groups"]
    assert {row["action"] for row in recorded} == {"in_step"}, "the lake knows the groups when the source is gone"

    unread = {
        group: {p: [value for offset, value in records if offset >= at.get(p, 0)] for p, records in written.items()}
        for group, at in reached.items()
    }
    for group, left in groups.items():
        due = {p: values for p, values in unread[group].items() if values}
        assert sum(map(len, due.values())) == left * PARTITIONS
        options = {"expected": left * PARTITIONS, "auto.offset.reset": "error"}
        with member(central, group, f"east.{topic}", **options) as read:
            assert read == due, f"law A: {group} skipped or repeated records"
    # Without --from-beginning a group that had no position would read nothing; one that goes on too early ends too early, and
    # one that goes on too late waits for more. That nothing comes past the end, the other groups have seen.
    due = sorted(value.decode() for values in unread[java_group].values() for value in values)
    printed = of_java(central, f"east.{topic}", "--max-messages", len(due), "--timeout-ms", 60_000)
    assert sorted(printed) == due, "law A: Java's group skipped or repeated records"
