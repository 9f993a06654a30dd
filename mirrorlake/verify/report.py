"""Report on one verification for sign-off: proven ranges with digests, topic ids and table versions.

It is made of the rows of `proofs`, so it can be made again at any time; the fingerprint tells whether two are the same.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from mirrorlake.errors import StoreError, UsageError
from mirrorlake.lake import Lake, RangeProof, read_proofs
from mirrorlake.model.verify import VerifyReport, VerifyReports
from mirrorlake.render import Displayable, Sheet, Table, html_page, json_file, plural, table

_ROWS = ("kind", "flow", "partition", "range", "how", "records", "target", "digest")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProofReport(Displayable):
    """The proofs of one verification; `reports` has counts and differences if this `Mirror` made it.

    Example:
        >>> mirror.proof_report(mirror.verify().verification).write("proof.html")  # doctest: +SKIP
        [PosixPath('proof.html'), PosixPath('proof.json')]
    """

    verification: str
    at: datetime
    proofs: tuple[RangeProof, ...]
    reports: tuple[VerifyReport, ...] = ()

    @property
    def relays(self) -> dict[str, int]:
        """The versions of the relays that were read, by source."""
        versions = {one.source: one.relay_version for one in self.proofs if one.relay_version is not None}
        return dict(sorted(versions.items()))

    @property
    def topics(self) -> dict[str, str]:
        """The ids of the topics on both ends, `source.topic` and `->target topic`."""
        found = {f"{one.source}.{one.partition.topic}": one.source_topic_id for one in self.proofs}
        found |= {f"->{one.target_topic}": one.target_topic_id for one in self.proofs if one.target_topic}
        return {name: topic_id for name, topic_id in sorted(found.items()) if topic_id}

    @property
    def ends(self) -> dict[str, int]:
        """The ends of the cut, of all proven partitions.

        `source.partition` is past the last landed record, `flow partition` the flow's position, `->partition` the end of the
        target's log.
        """
        found: dict[str, int] = {}
        for one in self.proofs:
            if one.upstream_end is not None:
                place = f"{one.source}.{one.partition}" if one.flow is None else f"{one.flow} {one.partition}"
                found[place] = max(found.get(place, 0), one.upstream_end)
            if one.downstream_end is not None:
                place = f"->{one.target_topic}-{one.target_partition}"
                found[place] = max(found.get(place, 0), one.downstream_end)
        return dict(sorted(found.items()))

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the rows in a fixed order: a report that is made again has the same.

        Nulls do not count, so that a later release with more columns says the same of these rows.
        """
        rows = [{name: value for name, value in row.items() if value is not None} for row in self._rows()]
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "verification": self.verification,
            "at": self.at.isoformat(),
            "equal": all(one.equal for one in self.reports) if self.reports else None,
            "fingerprint": self.fingerprint,
            "relay_versions": self.relays,
            "topic_ids": self.topics,
            "ends": self.ends,
            "records": dict(self._records()),
            "flows": [one.as_dict() for one in self.reports],
            "proofs": self._rows(),
        }

    def sheet(self) -> Sheet:
        """Show the versions, the ids and a row a proof."""
        facts = (
            f"verification {self.verification}",
            self.at,
            *(
                plural(records, f"record {how}") if how != "full" else plural(records, "record")
                for how, records in self._records().items()
            ),
            f"fingerprint {self.fingerprint}",
        )
        versions = table("relays", ["source", "version"], [(name, str(number)) for name, number in self.relays.items()])
        ids = table("topics", ["topic", "id"], list(self.topics.items()))
        ends = table("ends of the cut", ["place", "end"], list(self.ends.items()))
        return Sheet(
            title="proof",
            badge=VerifyReports(self.reports).sheet().badge if self.reports else None,
            facts=facts,
            parts=(*(one.sheet() for one in self.reports), versions, ids, ends, self._table()),
        )

    def write(self, path: str | Path) -> list[Path]:
        """Write a page and a JSON document of the same name, and return both.

        Raises:
            StoreError: a file cannot be written.
        """
        page, document = Path(path).with_suffix(".html"), Path(path).with_suffix(".json")
        try:
            page.write_text(html_page(f"mirrorlake verification {self.verification}", self), encoding="utf-8")
            document.write_text(json_file(self.as_dict()), encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}",
                consequence="there is no report; what was proven is in the table proofs",
                remedy=f"mirrorlake verify --of {self.verification} --report report.html",
            ) from error
        return [page, document]

    def _records(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for one in self.proofs:
            if one.kind != "source-relay" and one.records:
                counts[one.how] += one.records
        return counts

    def _rows(self) -> list[dict[str, Any]]:
        return sorted((asdict(one) for one in self.proofs), key=lambda row: json.dumps(row, sort_keys=True))

    def _table(self) -> Table:
        rows = [
            (
                one.kind,
                one.flow,
                str(one.partition),
                f"{one.first_upstream}..{one.last_upstream}",
                one.how,
                one.records,
                None if one.target_partition is None else f"{one.target_topic}-{one.target_partition}",
                one.digest,
            )
            for one in sorted(
                self.proofs, key=lambda one: (one.kind, one.flow or "", one.partition, one.first_upstream)
            )
        ]
        return table("proofs", list(_ROWS), rows)


def proof_report(
    lake: Lake, verification: str, reports: tuple[VerifyReport, ...] = (), at: datetime | None = None
) -> ProofReport:
    """Build the report of a verification from the table `proofs`.

    `reports` and `at` are what this process knows of it: a verification that found nothing new to prove wrote no row.
    """
    written_at, proofs = read_proofs(lake, verification)
    at = written_at or at
    if at is None:
        raise UsageError(
            f"the table proofs knows no verification {verification}",
            consequence="there is no report",
            remedy="`mirrorlake verify --json` says the id; where everything was proven before, add --full",
        )
    return ProofReport(verification=verification, at=at, proofs=tuple(proofs), reports=reports)
