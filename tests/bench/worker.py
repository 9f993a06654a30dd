"""A process with one Spark session that runs mirrorlake's verbs when it is told to: `python -m tests.bench.worker`.

A line of JSON comes in on standard input, `{"do": "land", "conf": FILE, ...}`; one goes out on standard output. It is a
process of its own so that the brokers and the benchmark are not part of what is measured.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from pyspark.sql import functions as F

import mirrorlake as ml
from mirrorlake.lake.schema import OFFSET_MAP
from mirrorlake.mirror import Mirror


class Worker:
    """Keep the mirrors of the settings files seen so far, all on one Spark session."""

    def __init__(self) -> None:
        self._mirrors: dict[str, Mirror] = {}

    def start(self, conf: str) -> dict[str, Any]:
        self._mirror(conf).spark.range(1).count()
        return {}

    def apply(self, conf: str) -> dict[str, Any]:
        self._mirror(conf).apply()
        return {}

    def land(self, conf: str, source: str) -> dict[str, Any]:
        return {"records": self._mirror(conf).land(source, once=True).records}

    def republish(self, conf: str, flow: str) -> dict[str, Any]:
        return {"records": self._mirror(conf).republish(flow, once=True).records}

    def run(self, conf: str) -> dict[str, Any]:
        _, sent = self._mirror(conf).run(once=True)
        return {"records": sum(one.records for one in sent)}

    def relay(self, conf: str, source: str) -> dict[str, Any]:
        """Return the relay's size, and of each topic-partition the first and the last offset and the records."""
        lake = self._mirror(conf).lake
        files, size = lake.size(lake.relay_location(source))
        rows = (
            lake.relay(source)
            .groupBy("topic", "partition")
            .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records"))
            .collect()
        )
        return {"files": files, "bytes": size, "parts": [list(row) for row in rows]}

    def map_rows(self, conf: str, flow: str) -> dict[str, Any]:
        """Return how many rows of `offset_map` a flow has, and how many records they cover."""
        rows = self._mirror(conf).lake.meta(OFFSET_MAP).where(F.col("flow") == flow)
        [row] = rows.agg(F.count("*").alias("rows"), F.sum("record_count").alias("records")).collect()
        return {"rows": int(row.rows), "records": int(row.records or 0)}

    def _mirror(self, conf: str) -> Mirror:
        if conf not in self._mirrors:
            self._mirrors[conf] = ml.load(conf)
        return self._mirrors[conf]


def main() -> None:
    # Whatever a library prints must not end up between the answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        _serve(Worker(), answers)


def _serve(worker: Worker, answers: TextIO) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        verb: Callable[..., dict[str, Any]] = getattr(worker, request.pop("do"))
        try:
            answer = verb(**request)
        except ml.MirrorlakeError as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
