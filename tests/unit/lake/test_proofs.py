"""What is proven of a flow, by the table `proofs`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Lake, ProofCache, RangeProof, proven_until
from mirrorlake.lake.duckdb_query import query_files
from mirrorlake.lake.proofs import proven_ranges, write_proofs
from mirrorlake.model.flow import SourcePartition
from tests.kit.lake import LakeBuilder

AT = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
FLOW = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "orders"})
ORDERS = SourcePartition("orders", 1, 0)


def landed(first: int, last: int, **changes: object) -> RangeProof:
    proof = RangeProof(
        kind="source-relay",
        source="east",
        partition=ORDERS,
        first_upstream=first,
        last_upstream=last,
        begins_at=0,
        how="full",
        records=last - first + 1,
        source_topic_id="s1",
    )
    return replace(proof, **changes)  # type: ignore[arg-type]


def sent(first: int, last: int, **changes: object) -> RangeProof:
    topic = {"flow": "east->central", "target_topic": "east.orders", "target_topic_id": "t1"}
    return landed(first, last, **{"kind": "relay-target", **topic, **changes})


def create_again(built: LakeBuilder, *, minutes: float) -> None:
    for minute, topic_id in ((0, "t1"), (minutes, "t2")):
        at = AT + timedelta(minutes=minute)
        built.observe("east.orders", cluster="central", role="target", topic_id=topic_id, observed_at=at)


def prove(lake: Lake, *proofs: RangeProof, minutes: float = 0) -> None:
    write_proofs(lake, proofs, verification=str(minutes), at=AT + timedelta(minutes=minutes))


@pytest.mark.law("E")
def test_law_e_proven_is_what_both_hops_prove_without_a_gap(lake: Lake) -> None:
    assert proven_until(lake, FLOW) == {}, "nothing was proven"
    prove(lake, landed(0, 99))
    assert proven_until(lake, FLOW) == {}, "law E: the target was not looked at"
    prove(lake, sent(0, 49), sent(40, 59, how="present"), sent(80, 99), minutes=1)
    assert proven_until(lake, FLOW) == {ORDERS: 60}, "law E: what lies past a gap is not proven up to there"
    prove(lake, sent(60, 79), minutes=3)
    assert proven_until(lake, FLOW) == {ORDERS: 100}
    prove(lake, sent(100, 199), minutes=4)
    assert proven_until(lake, FLOW) == {ORDERS: 100}, "law E: the relay was not compared with the source"
    prove(lake, landed(100, 149, how="gone"), minutes=5)
    assert proven_until(lake, FLOW) == {ORDERS: 150}
    prove(lake, sent(70, 70, how="different"), minutes=6)
    assert proven_until(lake, FLOW) == {ORDERS: 70}, "law E: a difference revokes the proof"
    prove(lake, sent(70, 70), minutes=6.5)
    assert proven_until(lake, FLOW) == {ORDERS: 150}
    prove(lake, sent(45, 45, how="different"), sent(120, 120, how="different"), minutes=7)
    assert proven_until(lake, FLOW) == {ORDERS: 45}, "law E: what is known to differ counts as proven"
    prove(lake, sent(40, 50), minutes=8)
    assert proven_until(lake, FLOW) == {ORDERS: 120}


def test_a_flow_and_landing_begin_where_they_begin(lake: Lake) -> None:
    prove(lake, landed(30, 99, begins_at=30), sent(0, 49))
    assert proven_until(lake, FLOW) == {ORDERS: 50}, "what expired before it was landed"
    other = FLOW.model_copy(update={"name": "late", "start": "latest"})
    prove(lake, sent(70, 89, flow="late", begins_at=70))
    assert proven_until(lake, other) == {ORDERS: 90}, "what precedes the flow's start"
    prove(lake, sent(80, 89, flow="later", begins_at=70))
    assert proven_until(lake, FLOW.model_copy(update={"name": "later"})) == {}, "a range of time in the middle"


@pytest.mark.law("E")
def test_law_e_a_proof_is_of_the_remote_topic_that_it_was_made_of(built: LakeBuilder, lake: Lake) -> None:
    prove(lake, landed(0, 99), sent(0, 99))
    assert proven_until(lake, FLOW) == {ORDERS: 100}
    create_again(built, minutes=5)
    assert proven_until(lake, FLOW) == {}, "law E: the topic was deleted and created again since"
    prove(lake, sent(0, 19, target_topic_id="t2"), minutes=6)
    assert proven_until(lake, FLOW) == {ORDERS: 20}
    renamed = FlowConfig.model_validate(
        {"source": "east", "target": "central", "topics": "orders", "policy": "identity"}
    )
    assert proven_until(lake, renamed) == {}, "law E: the flow sends to another topic now"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of questions that were answered from files."""
    texts: list[str] = []

    def noted(text: str, *tables: Any) -> Any:
        texts.append(text)
        return query_files(text, *tables)

    monkeypatch.setattr("mirrorlake.lake.reader.query_files", noted)
    return texts


@pytest.mark.law("E")
def test_law_e_what_is_kept_of_proofs_is_what_the_table_says_whoever_writes_there(
    built: LakeBuilder, lake: Lake, asked: list[str]
) -> None:
    kept = ProofCache(lake)
    minutes = iter(range(100))

    def write(*proofs: RangeProof) -> None:
        minute = next(minutes)
        kept.write(proofs, verification=str(minute), at=AT + timedelta(minutes=minute))

    def is_same(*, reads_proofs: bool) -> None:
        asked.clear()
        found = kept.read(FLOW)
        assert any("{proofs}" in text for text in asked) == reads_proofs
        assert (len(found), set(found)) == (len(expected := proven_ranges(lake, FLOW)), set(expected)), "law E"

    is_same(reads_proofs=True)
    for own in (
        [landed(0, 99), sent(0, 49)],
        [landed(100, 149, begins_at=5), landed(160, 169), sent(50, 59, how="present"), sent(10, 20)],
        [sent(60, 79, how="gone"), sent(0, 9, flow="another"), landed(150, 155, source="west")],
        [],
    ):
        write(*own)
        is_same(reads_proofs=False)
    prove(lake, landed(150, 159), minutes=next(minutes))
    write(landed(180, 189))
    for reads_proofs in (True, False):
        is_same(reads_proofs=reads_proofs)
    write(sent(30, 35, how="different"))
    for reads_proofs in (True, True):
        is_same(reads_proofs=reads_proofs)
    create_again(built, minutes=50)
    is_same(reads_proofs=True)
    assert {one.kind for one in kept.read(FLOW)} == {"source-relay"}, "law E: the topic was created again since"
