"""Command line of the benchmark: `python -m tests.bench --help`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial

from tests.bench import always_on, drain, loops, tables
from tests.bench.options import Options, parsed
from tests.bench.processes import this_machine
from tests.bench.results import MIRRORLAKE, Book, Say, markdown

SUITES: dict[str, Callable[[Options, Book, Say], None]] = {
    "always-on": always_on.measure,
    "drain": drain.measure,
    "loops": loops.measure,
    "tables": tables.measure,
}
# Nobody else is measured by these.
_OURS = {"loops", "tables"}


def main(arguments: list[str]) -> int:
    """Measure what is asked for, add it to the file, and print its tables; 1 when there is no figure of something."""
    options = parsed(arguments, SUITES)
    began_at, began, machine = datetime.now(timezone.utc), time.monotonic(), this_machine()

    def say(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {line}\n")

    command = shlex.join(["python", "-m", "tests.bench", *arguments])
    book = Book(options.json, say, command=command, machine=machine, date=f"{began_at:%Y-%m-%d}")
    for name in options.suites:
        if name in _OURS and MIRRORLAKE not in options.subjects:
            continue
        book.attempt(name, partial(SUITES[name], options, book, say))
    for suite in dict.fromkeys(one.suite for one in book.kept):
        sys.stdout.write(f"\n## {suite}\n\n{markdown(book.kept, suite)}\n")
    for what, why in book.failures.items():
        sys.stdout.write(f"\nno figure of {what}: {why.splitlines()[0]}\n")
    say(f"added to {options.json}")
    return int(bool(book.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
