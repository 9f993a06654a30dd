"""What the benchmarks of passes share: their options, lines of progress, and a failure that ends no other pass."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from tests.bench.contest import Say


def harness_parser(prog: str, description: str, subjects: Collection[str]) -> argparse.ArgumentParser:
    def names(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",")]
        if unknown := set(found) - set(subjects):
            known = ", ".join(subjects)
            raise argparse.ArgumentTypeError(f"no such subject: {', '.join(sorted(unknown))}; there are {known}")
        return found

    parser = argparse.ArgumentParser(prog=prog, description=description)
    add = parser.add_argument
    add("--records-scale", "--scale", type=float, default=1.0, metavar="X", help="1 is 3 M records (1)")
    add("--only", type=names, default=list(subjects), metavar="A,B", help=", ".join(subjects))
    add("--repeat", type=int, default=1, metavar="N", help="measured passes of each; medians (1)")
    add("--seed", type=int, default=7, help="of the record values (7)")
    add("--directory", type=Path, help="where data is put while it runs (the system's temporary folder)")
    return parser


def teller() -> Say:
    began = time.monotonic()

    def say(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {line}\n")

    return say


def attempt(run: Callable[[], None]) -> str:
    """Run a pass; say why it failed. What was measured before it is worth keeping, whatever it is."""
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
