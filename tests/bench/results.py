"""Results: one row a measured pass, kept in one JSON file, from which the tables of docs/benchmarks.md are made.

No process and no clock here. Whoever wins is printed as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

MIRRORLAKE = "mirrorlake"
MIRRORLAKE_STREAMING = "mirrorlake, streaming"
MIRRORLAKES = (MIRRORLAKE, MIRRORLAKE_STREAMING)
MM2 = "MM2, tuned, exactly-once"
# Above this, strangers on the machine have slowed the mirrors down: rates are not to be quoted then.
BUSY_CORES = 0.15
_DASH = "–"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One pass of one subject.

    `values` are named with their unit. `others_cores` is how many cores were busy with neither mirror nor brokers nor this
    benchmark: above a tenth or so, the clock says more about the machine than about the mirror.
    """

    suite: str
    case: str
    subject: str
    mode: str
    """Drain or always on; cold is the first pass of a process, warm a later one."""
    values: Mapping[str, float]
    others_cores: float = 0.0
    workload: str = ""
    command: str = ""
    machine: str = ""
    date: str = ""

    @property
    def kind(self) -> tuple[str, str, str, str, str]:
        """What passes have in common whose median is one line of a table."""
        return self.suite, self.workload, self.case, self.subject, self.mode


class Book:
    """The file of results; what is kept is written at once, so that a long benchmark can be run in pieces."""

    def __init__(self, file: Path, say: Say, *, command: str, machine: str, date: str) -> None:
        self._file, self._say = file, say
        self._origin = {"command": command, "machine": machine, "date": date}
        self.kept: list[Result] = []
        """What this invocation has measured."""
        self.failures: dict[str, str] = {}
        """Why there is no figure, by what was tried."""

    def keep(
        self,
        suite: str,
        case: str,
        values: Mapping[str, float],
        *,
        mode: str,
        subject: str = MIRRORLAKE,
        workload: str = "",
        others_cores: float = 0.0,
    ) -> None:
        one = Result(
            suite=suite,
            case=case,
            subject=subject,
            mode=mode,
            values=values,
            workload=workload,
            others_cores=others_cores,
            **self._origin,
        )
        self.kept.append(one)
        save(self._file, [*load(self._file), one])
        told = ", ".join(f"{name} {figure(value)}" for name, value in values.items())
        self._say(f"{suite}, {case}, {subject}: {told}")

    def attempt(self, what: str, run: Callable[[], None]) -> None:
        """Run a pass; say why it failed. What was measured before it is worth keeping, whatever it is."""
        try:
            run()
        except Exception as error:
            self.failures[what] = f"{type(error).__name__}: {error}"
            self._say(f"{what}: no figure: {self.failures[what]}")


def load(file: Path) -> list[Result]:
    return [Result(**one) for one in json.loads(file.read_text())] if file.exists() else []


def save(file: Path, results: Iterable[Result]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(asdict(one)) for one in results)
    file.write_text(f"[\n{lines}\n]\n")


def per_million(amount: float, records: int) -> float:
    if records <= 0:
        raise ValueError("no records were measured")
    return amount * 1_000_000 / records


def medians(results: Iterable[Result]) -> list[tuple[Result, int]]:
    """Return one result a kind, each value the median of its own, with the number of passes; a later day replaces an earlier.

    Example:
        >>> def one(cpu: float, date: str) -> Result:
        ...     return Result(suite="s", case="c", subject="a", mode="m", values={"CPU-s": cpu}, date=date)
        >>> [(found, passes)] = medians([one(9, "2026-01-01"), one(1, "2026-01-02"), one(3, "2026-01-02")])
        >>> found.values, passes
        ({'CPU-s': 2.0}, 2)
    """
    by_kind: dict[tuple[str, ...], list[Result]] = {}
    for one in results:
        by_kind.setdefault(one.kind, []).append(one)
    found = []
    for passes in by_kind.values():
        newest = max(one.date for one in passes)
        passes = [one for one in passes if one.date == newest]
        names = dict.fromkeys(name for one in passes for name in one.values)
        values = {name: float(median(one.values[name] for one in passes if name in one.values)) for name in names}
        busiest = max(one.others_cores for one in passes)
        found.append((Result(**{**asdict(passes[-1]), "values": values, "others_cores": busiest}), len(passes)))
    return found


def figure(value: float) -> str:
    """Write a number with the digits that it deserves.

    >>> figure(5312.4), figure(18.0), figure(0.4561), figure(1.0)
    ('5,312', '18', '0.46', '1')
    """
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def markdown(results: Iterable[Result], suite: str) -> str:
    """Return the tables of a suite, one a workload; behind mirrorlake's values are their ratios to MirrorMaker 2's of that case."""
    mine = [one for one in medians(results) if one[0].suite == suite]
    workloads = dict.fromkeys(one.workload for one, _ in mine)
    return "\n\n".join(
        _table(workload, [pair for pair in mine if pair[0].workload == workload]) for workload in workloads
    )


def _table(workload: str, rows: Sequence[tuple[Result, int]]) -> str:
    names = list(dict.fromkeys(name for one, _ in rows for name in one.values))
    said = {
        "subject": [one.subject for one, _ in rows],
        "mode": [one.mode for one, _ in rows],
        "passes": [str(passes) for _, passes in rows],
    }
    # What is the same in all lines stands once, above them.
    same = {what: texts[0] for what, texts in said.items() if len(set(texts)) == 1}
    shown = [what for what in said if what not in same]
    heading = [workload, same.get("mode", ""), f"{same['passes']} pass each" if same.get("passes") == "1" else ""]
    lines = [f"{'; '.join(filter(None, heading))}:", ""] if any(heading) else []
    lines += [_line(["", *shown, *names]), _line(["---"] * (1 + len(shown)) + ["---:"] * len(names))]
    for case in dict.fromkeys(one.case for one, _ in rows):
        within = [pair for pair in rows if pair[0].case == case]
        others = {one.subject: one.values for one, _ in within}
        base = others.get(MM2, {})
        for one, passes in within:
            share = base if one.subject in MIRRORLAKES else {}
            fixed = {"subject": one.subject, "mode": one.mode, "passes": str(passes)}
            cells = [_cell(one.values.get(name), share.get(name)) for name in names]
            lines.append(_line([case, *(fixed[what] for what in shown), *cells]))
    origins = dict.fromkeys((one.command, one.date, one.machine) for one, _ in rows)
    lines += ["", *(f"- `{command}`, {date}, {machine}" for command, date, machine in origins)]
    busy = max(one.others_cores for one, _ in rows)
    if busy > BUSY_CORES:
        lines.append(f"- Other processes kept up to {busy:.1f} cores busy: rates are too low, CPU-seconds too high.")
    return "\n".join(lines)


def _cell(value: float | None, other: float | None) -> str:
    if value is None:
        return _DASH
    return f"{figure(value)} ({figure(value / other)} x)" if other else figure(value)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
