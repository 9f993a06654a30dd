"""The result as a table for the terminal, as Markdown and as JSON; it is printed as it is, whoever wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rich.table import Table

from tests.bench.figures import BASELINES, Figure, Measurement, ratios, summarize, with_targets
from tests.bench.processes import Machine
from tests.bench.workload import PARTITIONS, Topic

# Above this, strangers on the machine have slowed the mirrors down: rates are not to be quoted then.
BUSY_CORES = 0.15
_DASH = "–"
_TITLE = "CPU-seconds per million records (medians; / is the share of MM2's in that setting)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that one invocation found out.

    `failures` gives the reason by subject where there is no figure.
    """

    command: str
    started_at: datetime
    machine: Machine
    topics: Sequence[Topic]
    measurements: Sequence[Measurement]
    failures: dict[str, str]

    @property
    def figures(self) -> list[Figure]:
        return summarize(self.measurements)

    def rich_tables(self) -> list[Table]:
        tables = []
        for title, (head, rows) in self._tables().items():
            table = Table(title=title, title_justify="left")
            for number, name in enumerate(head):
                table.add_column(name, justify="right" if number else "left", no_wrap=not number)
            for row in rows:
                table.add_row(*row)
            tables.append(table)
        return tables

    def markdown(self) -> str:
        lines = [
            f"`{self.command}`, {self.started_at:%Y-%m-%d}, on {self.machine}. {self.workload()}.",
        ]
        for title, (head, rows) in self._tables().items():
            lines += ["", f"{title}:", "", _line(head), _line(["---", *["---:"] * (len(head) - 1)])]
            lines += [_line(row) for row in rows]
        lines += [f"\n- {note}" if not number else f"- {note}" for number, note in enumerate(self.notes())]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "started_at": self.started_at.isoformat(),
            "machine": asdict(self.machine),
            "topics": [asdict(topic) for topic in self.topics],
            "measurements": [one.as_dict() for one in self.measurements],
            "figures": [asdict(figure) for figure in self.figures],
            "cpu_seconds_per_million_by_targets": with_targets(self.figures),
            "failures": self.failures,
        }

    def workload(self) -> str:
        parts = [f"{topic.records:,} records of {topic.value_bytes:,} B" for topic in self.topics]
        return f"{' and '.join(parts)}, {PARTITIONS} partitions each, lz4, keys of 12 B, no headers"

    def notes(self) -> list[str]:
        found = [f"{subject}: no figure, {reason.splitlines()[0]}" for subject, reason in self.failures.items()]
        busy = [figure for figure in self.figures if figure.strangers_cores > BUSY_CORES]
        if busy:
            worst = max(figure.strangers_cores for figure in busy)
            found.append(f"Other processes kept up to {worst:.1f} cores busy: the rates are too low, CPU-s too high.")
        for figure in self.figures:
            facts = ", ".join(f"{name} {value:,.0f}" for name, value in figure.facts.items() if value)
            if facts:
                found.append(f"{figure.subject}: {facts}.")
        return found

    def _tables(self) -> dict[str, tuple[list[str], list[list[str]]]]:
        tables = {_TITLE: (self._head(), [self._row(one) for one in self.figures])}
        fan_out = with_targets(self.figures)
        if fan_out:
            rows = [[subject, *[f"{value:.1f}" for value in values]] for subject, values in fan_out.items()]
            head = ["computed from the above", "1 target", "2 targets", "3 targets"]
            tables["CPU-s per million source records"] = (head, rows)
        return tables

    def _head(self) -> list[str]:
        shares = [f"/ {name.removeprefix('MM2, ').removeprefix('tuned, ')}" for name in self._baselines()]
        return ["", "passes", "records/s", "CPU-s per M", "min..max", *shares, "brokers", "start s", "start CPU-s"]

    def _row(self, figure: Figure) -> list[str]:
        share = ratios(figure, self.figures)
        low, high = figure.cpu_range
        return [
            figure.subject,
            str(figure.passes),
            f"{figure.records_per_second:,.0f}",
            f"{figure.cpu_per_million:.1f}",
            f"{low:.1f}..{high:.1f}" if figure.passes > 1 else _DASH,
            *[f"{share[name]:.2f}" if name in share else _DASH for name in self._baselines()],
            f"{figure.broker_cpu_per_million:.1f}",
            *[
                f"{value:.1f}" if value is not None else _DASH
                for value in (figure.start_seconds, figure.start_cpu_seconds)
            ],
        ]

    def _baselines(self) -> list[str]:
        there = {figure.subject for figure in self.figures}
        return [name for name in BASELINES if name in there]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
