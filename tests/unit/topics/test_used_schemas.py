"""Which ids the records of a flow name: each record is read once, and numbers are not taken for thousands of schemas."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import AUDIT, OFFSET_MAP, Audit, Lake
from mirrorlake.lake.schema import SIDE_TABLES
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.topics import SchemaUseReader
from tests.lakes import LANDED_AT, Relay, lake_in, rows

NOW = LANDED_AT + timedelta(minutes=5)


def framed(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"payload"


def flow(topics: str = "orders, clicks") -> FlowConfig:
    made = FlowConfig.model_validate({"source": "east", "target": "central", "topics": topics})
    return made.bound_to(TopicPattern(), adds_hops=False)


class Landed:
    """A lake with the relay of a source, and readers of what its records name."""

    def __init__(self, folder: Path) -> None:
        self.lake: Lake = lake_in(folder, *SIDE_TABLES)
        self.relay = Relay(self.lake.relay_location("east"))
        self.audit = Audit(self.lake, now=lambda: NOW)

    def land(self, topic: str, *values: bytes, first: int = 0, **columns: Any) -> None:
        records = (
            rows(topic, 0, first + n, **{"key": None, "value": value, **columns}) for n, value in enumerate(values)
        )
        self.relay.land(*records)

    def reader(self, topics: str = "orders, clicks", **options: Any) -> SchemaUseReader:
        return SchemaUseReader(self.lake, flow(topics), self.audit, **options)


@pytest.fixture
def landed(tmp_path: Path) -> Landed:
    return Landed(tmp_path)


def test_keys_and_values_of_the_flow_s_topics_count(landed: Landed) -> None:
    landed.land("orders", framed(7), framed(7), b"plain", b"\0\0\0\7", framed(2**32 - 1))
    landed.land("orders", framed(8), first=5, key=framed(9))
    landed.land("secrets", framed(10))
    uses = landed.reader().read(NOW)
    value = frozenset({"orders-value"})
    assert uses.subjects == {7: value, 8: value, 2**32 - 1: value, 9: frozenset({"orders-key"})}
    assert uses.records[7] == 2


def test_numbers_are_no_schemas(landed: Landed) -> None:
    landed.land("clicks", *((number << 24).to_bytes(8, "big") for number in range(1_001)))
    landed.land("orders", framed(7))
    assert set(landed.reader().read(NOW).subjects) == {7}


def test_a_reader_reads_each_record_once(landed: Landed) -> None:
    landed.land("orders", framed(7))
    reader = landed.reader()
    assert reader.read(NOW).records == {7: 1}
    landed.land("orders", framed(8), first=1)
    landed.land("clicks", framed(9))
    uses = reader.read(NOW)
    assert uses.records == {8: 1, 9: 1}
    assert set(uses.subjects) == {7, 8, 9}


def test_a_mark_spares_what_was_read_before_it(landed: Landed) -> None:
    landed.land("orders", framed(7), landed_at=NOW - timedelta(days=3))
    landed.land("orders", framed(8), first=1, landed_at=NOW - timedelta(minutes=59))
    reader = landed.reader()
    uses = reader.read(NOW)
    assert uses.needs_mark
    mark = reader.mark({7: uses.subjects[7]}, NOW)
    landed.audit.record([mark], command="apply")

    later = landed.reader().read(NOW)
    assert later.records == {8: 1}, "an hour before the mark is read again: clocks differ"
    assert later.subjects == uses.subjects
    assert not later.needs_mark
    assert landed.reader().read(NOW + timedelta(days=2)).needs_mark
    assert landed.reader("orders").read(NOW).records == {7: 1, 8: 1}, "other topics may have older records"


def test_only_the_newest_count_where_that_is_asked(landed: Landed) -> None:
    landed.land("orders", framed(7), landed_at=NOW - timedelta(days=3))
    landed.land("orders", framed(8), first=1)
    assert set(landed.reader(newest=timedelta(days=1)).read(NOW).subjects) == {8}


def test_an_empty_lake_names_nothing(tmp_path: Path) -> None:
    lake = lake_in(tmp_path, AUDIT, OFFSET_MAP, sees_all=lambda: True)
    uses = SchemaUseReader(lake, flow(), Audit(lake, now=lambda: NOW)).read(NOW)
    assert (uses.subjects, uses.needs_mark) == ({}, False)
