"""A process with one Spark session that runs mirrorlake's verbs when it is told to: `python -m tests.bench.worker`.

A line of JSON comes in on standard input, `{"do": "land", "conf": FILE, ...}`; one goes out on standard output. It is a
process of its own so that the brokers and the benchmark are not part of what is measured.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cache

import mirrorlake as ml


def _apply(mirror: ml.Mirror) -> int:
    mirror.apply()
    return 0


# Each returns how many records it gave.
VERBS: dict[str, Callable[..., int]] = {
    "start": lambda mirror: mirror.spark.range(0).count(),
    "apply": _apply,
    "land": lambda mirror, source: mirror.land(source, once=True).records,
    "republish": lambda mirror, flow: mirror.republish(flow, once=True).records,
    "run": lambda mirror: sum(one.records for one in mirror.run(once=True)[1]),
}


def main() -> None:
    load = cache(ml.load)
    # Whatever a library prints must not end up between the answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin:
            request = json.loads(line)
            verb = VERBS[request.pop("do")]
            try:
                answer: dict[str, object] = {"records": verb(load(request.pop("conf")), **request)}
            except ml.MirrorlakeError as error:
                answer = {"error": str(error)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
