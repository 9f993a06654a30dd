"""Progress of real work: what is reported is what was done, and only the caller's thread draws it."""

from __future__ import annotations

import threading
import time

import pytest

from mirrorlake.progress.board import Board
from mirrorlake.sandbox import KafkaCluster
from mirrorlake.streams import land, republish
from mirrorlake.wiring import Wiring
from tests.flow.kit import consume, create_topic, produce
from tests.flow.test_laws import topic_name
from tests.servers.lakes import MakeMirror

RECORDS = 120


class Memory:
    """A display that remembers which threads it was drawn by."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def show(self, *_: object) -> None:
        self.threads.add(threading.get_ident())

    def close(self, *_: object) -> None:
        self.threads.add(threading.get_ident())


class Hearing(Board):
    """A board that remembers every report."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.reports: dict[str, list[tuple[int, int | None]]] = {}
        super().__init__(self.memory, clock=time.monotonic)

    def tell(self, phase: str, done: int, total: int | None, unit: str = "records") -> None:
        self.reports.setdefault(phase, []).append((done, total))
        super().tell(phase, done, total, unit)


def test_what_a_drain_and_a_verify_report_is_what_they_did(
    east: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 2)
    produce(east.bootstrap_servers, topic, RECORDS)
    boards: list[Hearing] = []

    def watching(_: Wiring) -> Hearing:
        boards.append(Hearing())
        return boards[-1]

    monkeypatch.setattr(Wiring, "watching", watching)
    # Small batches that are told of at once, as a long drain has them.
    monkeypatch.setattr(land, "ACCOUNT_EVERY_S", 0.0)
    monkeypatch.setattr(republish, "BACKFILL_RECORDS", 40)
    mirror = make_mirror(
        {"east": east, "central": central},
        [{"source": "east", "target": "central", "topics": topic}],
        east={"land": {"max_records_per_batch": 40}},
    )
    mirror.run(once=True)
    arrived = sum(len(records) for records in consume(central.bootstrap_servers, f"east.{topic}").values())
    landed, sent = boards[-1].reports["land east"], boards[-1].reports["republish east->central"]
    assert landed[-1] == (mirror.lake.relay("east").count(), RECORDS)
    assert sent[-1] == (arrived, RECORDS)
    for reports in (landed, sent):
        assert [done for done, _ in reports] == sorted(done for done, _ in reports)
        assert any(0 < done < RECORDS and total == RECORDS for done, total in reports), (
            "on the way, the end is known from what the step knows"
        )
    assert boards[-1].memory.threads == {threading.get_ident()}

    produce(east.bootstrap_servers, topic, 10, seed=2)
    landing = mirror.land("east", once=True)
    assert boards[-1].reports["land east"][-1] == (landing.records, 10)
    mirror.republish("east->central", once=True)
    assert boards[-1].reports["republish east->central"][-1] == (10, 10)
    assert mirror["east->central"].verify().equal
    everything = RECORDS + 10
    assert boards[-1].reports["verify east->central"] == [
        (0, 2 * everything),
        (everything, 2 * everything),
        (2 * everything, 2 * everything),
    ]
    assert all(board.memory.threads == {threading.get_ident()} for board in boards)
