"""Law C: a power cut keeps what was flushed, so a file is on the disk before the commit that names it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.servers.lakes import Pair


def commits(table: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each commit of a table that names new files, with their paths."""
    for number, path in enumerate(sorted(table.glob("_delta_log/*.json"))):
        actions = map(json.loads, path.read_text().splitlines())
        if names := [str(table / one["add"]["path"]) for one in actions if "add" in one]:
            yield number, names


def note(fsync: Callable[[int], None], flushed: list[tuple[Path, int]], handle: int) -> None:
    """Flush as the system does, and note what, and how many commits its table had."""
    path = Path(f"/proc/self/fd/{handle}").resolve()
    table = path.parent.parent if path.parent.name == "_delta_log" else path.parent
    flushed.append((path, len(list(table.glob("_delta_log/*.json")))))
    fsync(handle)


@pytest.mark.law("C", "F")
def test_law_c_every_file_is_flushed_before_the_commit_that_names_it(pair: Pair) -> None:
    """A power cut between the two leaves a file that nobody names, never a commit that names an empty one."""
    pair.create(60)
    pair.mirror()
    tables = [*(pair.lake / "relay").iterdir(), *(pair.lake / "meta").iterdir()]
    before = {table: len(list(table.glob("_delta_log/*.json"))) for table in tables}
    flushed = list[tuple[Path, int]]()
    with patch.object(os, "fsync", partial(note, os.fsync, flushed)):
        for seed in (2, 3):
            done = pair.cli("run", "--once")
            assert done.returncode == 0, done.stderr
            pair.produce(20, seed=seed)
    written = set()
    for table in tables:
        for number, names in commits(table):
            if number < before[table]:
                continue
            written.add(table.name)
            for name in names:
                at = [newest for path, newest in flushed if path == Path(name)]
                assert at, f"law C: {name} was never flushed"
                assert min(at) <= number, f"law C: {name} was flushed after commit {number}, which names it"
            assert (table / "_delta_log", number + 1) in flushed, f"law C: commit {number} of {table} was not flushed"
            assert any(
                path.suffix == ".tmp" and newest == number for path, newest in flushed if path.parent.parent == table
            ), "a commit has its name once it is whole"
    assert {"east", "offset_map"} <= written
