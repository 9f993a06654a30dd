"""Count how far a flow has come in the relay of its source, in records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirrorlake.lake import RelayFile
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.progress import ProgressCallback


class RelayProgress:
    """Count the relay's records that a flow has sent or withheld, and those that are due."""

    def __init__(self, flow: str, tell: ProgressCallback) -> None:
        self._phase = f"republish {flow}"
        self._tell = tell
        self._withheld = 0
        self._due: int | None = None
        self.sent = 0

    def expect(self, files: Iterable[RelayFile]) -> None:
        self._due = max(self._due or 0, self._passed_records + sum(file.records for file in files))
        self.report()

    def passed(self, records: Sequence[LedgerRecord]) -> None:
        self.sent += sum(run.count for record in records for run in record.runs)
        self._withheld += sum(item.ranges.count for record in records for item in record.withheld)
        self.report()

    def finish(self) -> None:
        self._due = self._passed_records
        self.report()

    def report(self) -> None:
        self._tell(self._phase, self._passed_records, self._due)

    @property
    def _passed_records(self) -> int:
        return self.sent + self._withheld
