"""The doctor on a cluster of three brokers, one of which is killed: partitions without a leader, and replicas out of sync."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import NewTopic

from tests.chaos.cluster import Side
from tests.kit.processes import wait_until
from tests.unit.doctor.kit import examined, settings


def test_a_broker_that_is_lost_shows_where_it_led_and_where_it_held_replicas(tmp_path: Path) -> None:
    side = Side("three", tmp_path / "brokers", brokers=3)
    side.start()
    try:
        admin = side.admin()
        for name, replicas, least in (
            ("orders", [[1], [2]], 1),
            ("east.orders", [[1, 2], [2, 3]], 1),
            ("clicks", [[2]], 1),
            ("east.clicks", [[3, 1]], 2),
        ):
            new = NewTopic(name, len(replicas), replica_assignment=replicas, config={"min.insync.replicas": str(least)})
            [made] = admin.create_topics([new]).values()
            made.result(30)
        given = settings({"bootstrap_servers": side.direct})
        given["clusters"]["west"] = {"bootstrap_servers": side.direct}
        given["flows"][0]["topics"] = "orders, clicks"
        names = ("source.leaders", "target.in-sync")

        def told() -> dict[str, list[tuple[str, str]]]:
            found: dict[str, list[tuple[str, str]]] = {}
            for one in examined(tmp_path, only=names, given=given).bad:
                found.setdefault(one.check, []).append((one.severity, one.detail))
            return found

        wait_until(lambda: told() == {}, "all three brokers are in sync")
        side.nodes[0].kill()

        def missed() -> dict[str, list[tuple[str, str]]]:
            # Each question is answered by some broker, and one may know of it before the other.
            seen = told()
            return seen if "source.leaders" in seen and len(seen.get("target.in-sync", ())) > 1 else {}

        found = wait_until(missed, "it is missed")
        assert found["source.leaders"] == [("failure", "1 partition without a leader: orders-0")]
        assert found["target.in-sync"] == [
            ("failure", "too few replicas in sync to take a write: east.clicks-0 (1 of 2)"),
            ("warning", "1 partition with replicas out of sync: east.orders-0"),
        ]
    finally:
        side.kill()
