"""Command line of the chaos: `python -m tests.chaos --help`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

from tests.chaos.faults import KINDS
from tests.chaos.history import History
from tests.chaos.schedule import planned
from tests.chaos.world import Setting, World


def main(arguments: list[str]) -> int:
    """Run one seed; 0 where every promise was kept, 1 where one was broken."""
    options = _parsed(arguments)
    only = {*filter(None, options.only.split(","))} or {*KINDS}
    kinds = {name: kind for name, kind in KINDS.items() if name in only}
    schedule = planned(options.seed, options.minutes, kinds, brokers=options.brokers)
    setting = Setting.of(options.seed, brokers=options.brokers, partitions=options.partitions)
    sys.stderr.write(f"seed {options.seed}, {options.minutes:g} min, {len(schedule)} faults, {setting}\n")
    for one in schedule:
        sys.stderr.write(f"  {one}\n")
    if options.plan:
        return 0
    # Whatever ends it, the mirror and the brokers end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    history = History(loud=options.history)
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{options.seed}-", dir=options.directory))
    began = time.monotonic()
    with World(folder, options.seed, setting, history) as world:
        world.wait_begun()
        world.carry_out(schedule)
        history.say("all faults have ended")
        world.settle()
    result = {
        "seed": options.seed,
        "minutes": options.minutes,
        "only": options.only,
        "setting": {name: getattr(setting, name) for name in setting.__slots__},
        "seconds": round(time.monotonic() - began, 1),
        "faults": len(schedule),
        "compared": world.records,
        "group_positions": world.groups.checked,
        "starts": len(world.keeper.all),
        "findings": [{"kind": one.kind, "text": one.text} for one in history.findings],
        "folder": str(folder),
    }
    if history.findings and not options.history:
        sys.stderr.write(history.text())
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return int(bool(history.findings))


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="faults by chance, and a checker")
    add = parser.add_argument
    add("--seed", type=int, default=SystemRandom().randrange(10**6), help="decides everything (by chance)")
    add("--minutes", type=float, default=3.0, metavar="M", help="how long faults come (3)")
    add("--brokers", type=int, choices=(1, 3), default=1, help="of each cluster (1)")
    add("--partitions", type=int, default=3, metavar="N", help="of each of the two topics (3)")
    add("--only", default="", metavar="A,B", help=f"only these faults: {', '.join(sorted(KINDS))}")
    add("--history", action="store_true", help="print what happens while it happens")
    add("--plan", action="store_true", help="print the schedule and end")
    add("--directory", type=Path, help="where data are put, and left (the system's temporary folder)")
    found = parser.parse_args(arguments)
    if unknown := set(filter(None, found.only.split(","))) - KINDS.keys():
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
