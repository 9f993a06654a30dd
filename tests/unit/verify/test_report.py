"""The report of a verification: where its cut ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from mirrorlake.lake import RangeProof
from mirrorlake.model.flow import SourcePartition
from mirrorlake.verify.report import ProofReport

AT = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
LANDED = RangeProof(
    kind="source-relay",
    source="east",
    partition=SourcePartition("orders", 1, 0),
    first_upstream=0,
    last_upstream=9,
    begins_at=0,
    how="full",
    records=10,
    digest="d",
    relay_version=4,
    upstream_end=10,
)
SENT = replace(
    LANDED,
    kind="relay-target",
    flow="east->central",
    last_upstream=7,
    target_topic="east.orders",
    target_partition=0,
    upstream_end=8,
    downstream_end=11,
)


def made(*proofs: RangeProof) -> ProofReport:
    return ProofReport(verification="v", at=AT, proofs=proofs)


def test_a_report_names_where_the_cut_ended() -> None:
    report = made(LANDED, SENT)
    assert report.ends == {"east.orders-0": 10, "east->central orders-0": 8, "->east.orders-0": 11}
    assert report.fingerprint == made(SENT, LANDED).fingerprint, "in whatever order the rows are read"
    assert report.fingerprint != made(LANDED, replace(SENT, downstream_end=12)).fingerprint
