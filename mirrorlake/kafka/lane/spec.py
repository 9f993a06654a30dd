"""The spec that a worker needs to hold a lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import Claim
from mirrorlake.model.remotes import Remote

# How long a lane waits for a target that does not answer before the step fails; a broker restart takes seconds.
RETRY_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpec:
    """A lane's claim, its limits, the remote topics by source topic, and the options of the target cluster.

    `seq` is the lane's newest ledger record that the driver knows, None without a driver; `ends` are the offsets after the last
    confirmed records that it knows.
    """

    claim: Claim
    target: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    reader_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    exactly_once: bool = True
    chunk_records: int = 100_000
    chunk_bytes: int = 64 * 1024 * 1024
    quarantines: bool = False
    seq: int | None = None
    replication_factor: int | None = None
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    retry_timeout_s: float = RETRY_TIMEOUT_S
