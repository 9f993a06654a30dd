"""Give the hops the verdicts of the status, whose snapshot is the last sample of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from mirrorlake.lag.forecast import CatchUp
from mirrorlake.lag.hop_verdicts import HopKey, HopVerdict, LagVerdict
from mirrorlake.lag.partition_status import PartitionStatus
from mirrorlake.lag.status import Status
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.lag.verdict import WINDOW_SAMPLES, Verdict
from mirrorlake.model.control import ControlState

HopWindows = Mapping[HopKey, Sequence[LagSample]]
"""The samples of each hop, oldest first."""


def append_snapshot(windows: HopWindows, status: Status) -> HopWindows:
    """Append the snapshot of a status to the samples of its hops, without newer samples of another sampler."""
    at, rows, looked = status.observed_at, _rows(status), dict(windows)
    if at is None:
        return looked
    for place, window in windows.items():
        row = rows.get((place.flow, place.topic, place.partition))
        earlier = [sample for sample in window if sample.observed_at < at]
        if row is not None and earlier and place.hop != "consumed":
            looked[place] = [*earlier[1 - WINDOW_SAMPLES :], _sample(place, row, earlier[-1], at)]
    return looked


def _sample(place: HopKey, row: PartitionStatus, before: LagSample, at: datetime) -> LagSample:
    if place.hop == "republished":
        age_ms = row.time_lag_ms
        since = at - timedelta(milliseconds=age_ms) if age_ms else None
        position, offset_lag = row.republished, row.offset_lag
    else:
        # Only the source knows the age of a record that is not landed; what waited at the sample before still waits.
        position, offset_lag = row.landed, max(0, row.source_end - row.landed)
        since = before.waiting_since if offset_lag and row.landed == before.position else None
        age_ms = None if offset_lag else 0
        if since is not None:
            age_ms = max(0, int((at - since).total_seconds() * 1000))
    return LagSample(
        observed_at=at,
        position=position,
        end_position=row.source_end,
        offset_lag=offset_lag,
        waiting_since=since,
        time_lag_ms=age_ms,
    )


def adopt_status(verdict: LagVerdict, status: Status, state: ControlState) -> LagVerdict:
    """Return the verdicts with those of the status on its flows; `state` names the pauses of landing."""
    rows, flows = _rows(status), dict(status)

    def adopted(hop: HopVerdict) -> HopVerdict:
        place = hop.key
        flow, row = flows.get(place.flow), rows.get((place.flow, place.topic, place.partition))
        if flow is None or place.hop == "consumed":
            return hop
        if flow.unknown and (place.hop == "republished" or flow.away == place.source):
            # Earlier figures do not describe the present.
            last = replace(hop.last, end_position=None, offset_lag=None, waiting_since=None, time_lag_ms=None)
            catch_up = CatchUp(eta_ms=None, reason=flow.unknown)
            return replace(hop, verdict=Verdict.CLUSTER_AWAY, reason=flow.unknown, last=last, catch_up=catch_up)
        if place.hop == "landed":
            pause = state.of_cluster(place.source)
            return hop if pause is None else replace(hop, verdict=Verdict.PAUSED, reason=f"{pause}; {hop.reason}")
        if row is None:
            return hop
        catch_up = replace(hop.catch_up, eta_ms=row.eta_ms)
        return replace(hop, verdict=Verdict[row.verdict], reason=row.reason, catch_up=catch_up)

    return replace(verdict, hops=tuple(map(adopted, verdict.hops)), status=status).worst_first()


def _rows(status: Status) -> dict[tuple[str, str, int], PartitionStatus]:
    return {(flow.flow, row.topic, row.partition): row for flow in status.flows for row in flow.partitions}
