"""What is measured, and how much of it: the command line of all suites."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.contest import Contest
from tests.bench.results import MIRRORLAKE, MIRRORLAKE_STREAMING, MM2, Say
from tests.bench.workload import CODECS, RECORDS, Topic, topics

_SUBJECTS = {MIRRORLAKE: MIRRORLAKE, "mirrorlake-streaming": MIRRORLAKE_STREAMING, "mm2-exactly-once": MM2}


class Options(argparse.Namespace):
    """The choices of one invocation, by the names of the command line."""

    @property
    def subjects(self) -> list[str]:
        return [subject for name, subject in _SUBJECTS.items() if name in self.only]

    def topics(self, prefix: str = "bench.") -> tuple[Topic, ...]:
        return topics(self.scale, sizes=self.sizes, partitions=self.partitions, codec=self.codec, prefix=prefix)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Lend a folder for as long as a suite runs."""
        with tempfile.TemporaryDirectory(prefix="mirrorlake-bench-", dir=self.directory) as directory:
            yield Path(directory)

    @contextmanager
    def contest(self, say: Say, *, targets: int = 1) -> Iterator[Contest]:
        """Start a source and so many targets, still empty."""
        with (
            self.folder() as folder,
            Contest(self.topics(), seed=self.seed, directory=folder, say=say, targets=targets) as contest,
        ):
            yield contest


def parsed(arguments: Sequence[str], suites: Collection[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="mirrorlake beside MirrorMaker 2")
    add = parser.add_argument
    add("suites", nargs="*", metavar="SUITE", help=f"{', '.join(suites)} (all of them)")
    add("--only", type=_words, default=[MIRRORLAKE, "mm2-exactly-once"], metavar="A,B", help=", ".join(_SUBJECTS))
    add("--targets", type=_numbers, default=[1, 2, 3], metavar="N,M", help="how many targets (1,2,3)")
    add("--repeat", type=int, default=1, metavar="N", help="measured passes of each drain; medians (1)")
    add("--scale", type=float, default=1.0, metavar="X", help="share of the records of drains and bursts (1)")
    add(
        "--sizes",
        type=_numbers,
        default=[1_000, 100],
        metavar="N,M",
        help=f"bytes a value: {_known(RECORDS)} (1000,100)",
    )
    add("--partitions", type=int, default=8, metavar="N", help="of each topic, but for those of the rates (8)")
    add("--codec", choices=CODECS, default="lz4", help="of the source's producers (lz4)")
    add(
        "--rates",
        type=_numbers,
        default=[1000, 5000, 0],
        metavar="A,B",
        help="records/s of a running mirror (1000,5000,0)",
    )
    add("--spread", type=int, default=0, metavar="N", help="partitions of the rates, in topics of 20 (4 in one topic)")
    add("--seconds", type=float, default=60.0, metavar="S", help="of each rate (60)")
    add(
        "--warm-up",
        type=float,
        default=30.0,
        metavar="S",
        help="of each rate; brokers of 1,000 partitions want 90 (30)",
    )
    add("--bursts", type=int, default=3, metavar="N", help="into the running mirror; medians (3)")
    add("--seed", type=int, default=7, metavar="N", help="of the record values (7)")
    add("--json", type=Path, default=Path("build/bench.json"), metavar="FILE", help="added to (build/bench.json)")
    add("--directory", type=Path, help="where data is put while it runs (the system's temporary folder)")
    found = parser.parse_args(arguments, namespace=Options())
    for what, given, known in (
        ("suite", found.suites, suites),
        ("subject", found.only, _SUBJECTS),
        ("size of a value", found.sizes, RECORDS),
    ):
        if unknown := [one for one in given if one not in known]:
            parser.error(f"no such {what}: {_known(unknown)}; there are {_known(known)}")
    found.suites = found.suites or list(suites)
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _numbers(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


def _known(names: Collection[object]) -> str:
    return ", ".join(map(str, names))
