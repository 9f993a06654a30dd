"""What `tests/kit/lake.py` writes is what the product owns and reads."""

from __future__ import annotations

import pytest

from mirrorlake import Exact, NoRecord, NotYetRepublished
from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.schema import RELAY, SIDE_TABLES
from mirrorlake.model.flow import SourcePartition, TopicPartition
from tests.kit.lake import FLOW, NOON, TABLES, LakeBuilder


def test_its_columns_are_those_of_the_docs_and_the_product() -> None:
    documented = {table: {column.name: column.type for column in columns} for table, columns in TABLES.items()}
    assert documented == {table.name: arrow_types(table) for table in (RELAY, *SIDE_TABLES)}
    with pytest.raises(AssertionError, match="colour"):
        LakeBuilder.add(None, "gaps", colour="red")  # type: ignore[arg-type]


@pytest.mark.law("A", "E")
def test_law_e_a_mirror_says_of_a_lake_what_the_builder_wrote(built: LakeBuilder) -> None:
    built.land("orders", 0, [0, 1, 4, 6]).add("gaps", first_offset=2, last_offset=3, missing=2, kind="compacted")
    built.send([0, 1, 4], 7).withhold(6, rule="tests", rule_version="1").position("landed", 7).observe("orders")
    built.sample(NOON, topic="orders", last_stable=9, reached=7, republished=5)
    mirror = built.mirror()
    offsets, remote = mirror[FLOW].offsets, TopicPartition("east.orders", 0)
    assert [offsets.translate("orders", 0, at) for at in (0, 1, 4)] == [Exact(at, remote) for at in (7, 8, 9)]
    assert isinstance(offsets.translate("orders", 0, 3), NoRecord)
    assert isinstance(offsets.translate("orders", 0, 7), NotYetRepublished)
    assert offsets.translate_back("orders", 0, 9) == Exact(4, SourcePartition("orders", 1, 0))
    page = mirror.browse("east", "orders", relay=True)
    assert [record.offset for record in page.records] == [0, 1, 4, 6]
    assert [(part.first, part.last, part.kind) for part in page.missing] == [(2, 3, "compacted"), (5, 5, "unexplained")]
    lags = {row.hop: (row.position, row.offset_lag) for row in mirror.lag.over(NOON, NOON).rows()}
    assert lags == {"landed": (7, 2), "republished": (5, 4)}
