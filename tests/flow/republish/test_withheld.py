"""Records that a flow withholds: counted, explained, verified, passed by groups, and sent again on request (law E)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

from mirrorlake.errors import StoreError
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import OFFSET_MAP, QUARANTINE, WITHHELD
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.offset_map import Exact, Filtered, Quarantined
from mirrorlake.model.withheld import FILTERED, QUARANTINED, Withheld, ranges_of
from mirrorlake.republish.quarantine import Redriven
from mirrorlake.rules import flow_view_build
from mirrorlake.rules.view import Viewed
from tests.kit.records import commit
from tests.servers.lakes import Pair

RECORDS = 60
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Shout:
    """Filter every fifth offset, quarantine every seventh unless `judges_all`, write the values of the others large."""

    judges_all: bool = False

    @property
    def version(self) -> str:
        return "all" if self.judges_all else "some"

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        offsets = records.column("offset").to_numpy()
        fifth = offsets % 5 == 0
        seventh = (offsets % 7 == 0) & ~fifth & (not self.judges_all)
        withheld = [
            Withheld(
                source=source,
                kind=kind,
                rule=rule,
                version="1",
                ranges=ranges_of(offsets[rows].tolist()),
                reason=reason,
            )
            for kind, rule, rows, reason in (
                (FILTERED, "fifth", fifth, ""),
                (QUARANTINED, "seventh", seventh, "nobody knows"),
            )
            if np.any(rows)
        ]
        kept = records.filter(pa.array(~fifth & ~seventh))
        values = pa.array([value.upper() for value in kept.column("value").to_pylist()], pa.binary())
        at = kept.schema.names.index("value")
        return Viewed(records=kept.set_column(at, "value", values), withheld=tuple(withheld))


def is_kept(offset: int) -> bool:
    return offset % 5 != 0 and offset % 7 != 0


@pytest.mark.law("E", "F")
def test_law_e_withheld_records_are_accounted_for_and_redriven_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topic
    pair.create(RECORDS, partitions=1)
    commit(pair.east, "billing", topic, {0: 0})
    monkeypatch.setattr(flow_view_build, "make_flow_view", lambda *_, **__: Shout())
    fed = pair.flow(name="fed", execution="streaming", policy={"template": "fed.{topic}"}, sync={"groups": False})
    mirror = pair.mirror(pair.flow(), fed)
    mirror.run(once=True)

    kept = [offset for offset in range(RECORDS) if is_kept(offset)]
    for remote in (pair.remote, f"fed.{topic}"):
        assert [r.value for r in pair.target(remote)[0]] == [f"V1-{offset}".encode() for offset in kept]
    assert isinstance(mirror["fed"].offsets.translate(topic, 0, 7), Quarantined)
    handle = mirror["east->central"]
    found = {offset: handle.offsets.translate(topic, 0, offset) for offset in (0, 7, 8, RECORDS - 4)}
    assert isinstance(found[8], Exact)
    assert isinstance(found[0], Filtered), "law E: before the first record that was sent"
    assert (found[0].rule, found[0].version) == ("fifth", "1")
    assert found[7] == Quarantined(found[7].resume_at, "nobody knows", "seventh", "1")
    assert found[RECORDS - 4] == Quarantined(found[RECORDS - 4].resume_at, "nobody knows", "seventh", "1")
    [group] = mirror.plan_groups("east->central")
    assert (group.resume.exact, group.resume.downstream_offset) == (True, 0), "what a rule withheld is not waited for"
    report = handle.verify()
    assert report.equal, report.differences
    [proof] = report.partitions
    assert (proof.republished, proof.withheld, proof.verified) == (len(kept), RECORDS - len(kept), len(kept))
    quarantined = {7 * n for n in range(9)} - {0, 35}
    rows = mirror.lake.meta(QUARANTINE).orderBy("flow", "offset").collect()
    assert [(row.flow, row.offset, bytes(row.value)) for row in rows] == [
        (flow, n, f"v1-{n}".encode()) for flow in ("east->central", "fed") for n in sorted(quarantined)
    ]

    # Nothing can be judged yet: nothing is sent, nothing is lost, nothing is told twice.
    assert handle.quarantine.redrive() == Redriven(
        flow="east->central", sent=0, filtered=0, still_quarantined=len(quarantined)
    )
    assert [one.records for one in handle.quarantine.summary()] == [len(quarantined)]
    monkeypatch.setattr(flow_view_build, "make_flow_view", lambda *_, **__: Shout(judges_all=True))
    assert handle.quarantine.redrive().sent == len(quarantined)
    assert handle.quarantine.redrive().sent == 0, "law F"
    values = [r.value for r in pair.target()[0]]
    assert values[len(kept) :] == [f"V1-{offset}".encode() for offset in sorted(quarantined)]
    assert handle.quarantine.summary() == []
    assert isinstance(handle.offsets.translate(topic, 0, 7), Exact)
    # By the other feeder, too.
    assert mirror["fed"].quarantine.redrive().sent == len(quarantined)
    assert [r.value for r in pair.target(f"fed.{topic}")[0]] == values
    pair.produce(5, seed=2)
    mirror.run(once=True)
    report = handle.verify()
    assert report.equal, f"records of the older rules are there, those of the newer are compared: {report.differences}"


@pytest.mark.law("E", "F")
def test_law_f_copies_that_a_crash_kept_from_the_lake_are_made_at_the_next_start(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.create(RECORDS, partitions=1)
    monkeypatch.setattr(flow_view_build, "make_flow_view", lambda *_, **__: Shout())
    mirror = pair.mirror()
    append = Lake.append

    def crash(lake: Lake, frame: Any, location: str, **options: Any) -> None:
        if location == lake.meta_location(QUARANTINE):
            raise OSError("the lake is away")
        append(lake, frame, location, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "append", crash)
        with pytest.raises(StoreError, match="the lake is away"):
            mirror.run(once=True)
    assert mirror.lake.meta(QUARANTINE).count() == 0
    mirror.run(once=True)
    assert mirror.lake.meta(QUARANTINE).count() == 7
    for table in (OFFSET_MAP, WITHHELD):
        rows = mirror.lake.meta(table).groupBy("lane", "ledger_seq", "generation").count()
        assert rows.where(F.col("count") > 2).count() == 0, f"law F: {table.name} tells something twice"
    assert mirror["east->central"].verify().equal
