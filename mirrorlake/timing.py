"""The waits, intervals and sizes that a test may need smaller.

`MIRRORLAKE_TIMING="hot_s=0,compaction_fanout=3"` sets some of them for a process, its child processes, and the JVM and Python
workers that it starts. A process reads the variable at each use; workers have it as it was when their JVM started.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import lru_cache

from mirrorlake.errors import UsageError

VARIABLE = "MIRRORLAKE_TIMING"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds and numbers, as users have them."""

    # Landing. If the relay is no folder, accounting reads the small columns of newly landed records: 0.4 CPU-s a million.
    account_interval_s: float = 5.0
    # Any election takes less, also the first one of a new topic.
    election_timeout_s: float = 5.0
    # 100 000 records cost this process less than Spark's start or a job: 4 us each to land, and to send.
    max_records_in_process: int = 100_000
    # Commits from one log checkpoint of a table to the next.
    log_checkpoint_commits: int = 100

    # Sending. How often live tasks restart for empty topics whose remote topics were created meanwhile.
    ready_interval_s: float = 30.0
    # A check of a topic that waits costs a few admin calls.
    waiting_topics_interval_s: float = 30.0

    # Maintenance. Accounts and lag still read newer files by landing time, batch by batch: small files suit that.
    hot_s: float = 120.0
    # Neighbouring bounds of tiers differ 32-fold: a merged file leaves its tier.
    compaction_fanout: int = 32
    # With any number of partitions: whoever lists a relay reads the spans of all waiting batches.
    compaction_max_waiting: int = 2_048
    # A mirror that starts needs all cores: upkeep and samples come later.
    first_maintenance_s: float = 60.0
    first_sample_s: float = 20.0
    line_interval_s: float = 60.0

    # Processes. On an object store each sign is a paid request: some 4 cents a day and process.
    process_sign_interval_s: float = 10.0
    stream_sign_interval_s: float = 20.0
    # A longer batch is interrupted, and the next start repeats it safely (law F). A process has 20 s from SIGTERM to its end.
    grace_s: float = 12.0
    # A new machine or pod may take a minute to start.
    slot_timeout_s: float = 120.0
    heartbeat_interval_s: float = 5.0
    # A cluster that never answered is more often a mistake in the settings than an outage.
    setup_s: float = 60.0
    # A stream that has run so long has recovered from its last failure.
    healthy_s: float = 60.0

    # Clusters. librdkafka's own socket time-out is 60 s; a person waits no longer than this for a wrong port.
    admin_timeout_s: float = 15.0
    # Elections and moves of coordinators and leaders take seconds.
    retry_timeout_s: float = 30.0
    # How often a following reader checks for new partitions.
    new_partitions_interval_s: float = 5.0
    # A restarting broker answers again within the time-out of an admin call.
    restart_timeout_s: float = 15.0
    # Landers and flows move about once a second; without progress for this long, none runs.
    progress_timeout_s: float = 5.0


def timing() -> Timing:
    """Return the values in force.

    Raises:
        UsageError: the variable names no field, or a value is no number.
    """
    return _read(os.environ.get(VARIABLE, ""))


@lru_cache(maxsize=16)
def _read(text: str) -> Timing:
    types = {field.name: int if field.type == "int" else float for field in fields(Timing)}
    given: dict[str, float] = {}
    for name, _, value in (one.strip().partition("=") for one in text.split(",") if one.strip()):
        try:
            given[name] = types[name](value)
        except (KeyError, ValueError):
            raise UsageError(
                f"{VARIABLE} has {name}={value}, " + ("no number of it" if name in types else "a name that is unknown"),
                consequence="nothing was started",
                remedy=f"unset {VARIABLE}, or name one of {', '.join(types)}",
            ) from None
    return Timing(**given)  # type: ignore[arg-type]
