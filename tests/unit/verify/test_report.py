"""The report of a verification: what it names, and that it can be made again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from datetime import datetime, timezone
from shutil import rmtree

from mirrorlake.lake import Lake, RangeProof
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.proofs import write_proofs
from mirrorlake.lake.schema import PROOFS
from mirrorlake.model.flow import SourcePartition
from mirrorlake.verify.report import ProofReport, proof_report

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


def test_a_report_is_made_again_of_a_table_that_knew_fewer_columns(lake: Lake) -> None:
    columns = {name: held for name, held in PROOFS.columns.items() if not name.endswith("_end")}
    rmtree(lake.meta_location(PROOFS))
    FolderTables().create(lake.meta_location(PROOFS), replace(PROOFS, columns=columns))
    older = replace(LANDED, upstream_end=None)
    row = {name: getattr(older, name) for name in columns if hasattr(older, name)}
    row |= {"topic": "orders", "generation": 1, "partition": 0, "verification": "v", "proven_at": AT}
    lake.append(replace(PROOFS, columns=columns), [row])
    report = proof_report(lake, "v")
    assert (report.proofs, report.ends) == ((older,), {})
    # What a release without these columns said of the row.
    known = {name: value for name, value in asdict(older).items() if value is not None}
    assert report.fingerprint == hashlib.sha256(json.dumps([known], sort_keys=True).encode()).hexdigest()
    write_proofs(lake, [LANDED, SENT], verification="w", at=AT)
    again = proof_report(lake, "w")
    assert again.fingerprint == made(LANDED, SENT).fingerprint
    assert proof_report(lake, "v").fingerprint == report.fingerprint
