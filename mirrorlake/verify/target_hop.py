"""Compare the second hop: a target holds the relay's records as the rules changed them, at the mapped offsets.

Records that rules changed are compared with what the rules make of the relay's; of those that older rules changed, only the
presence is checked. Where a remote topic holds records that no flow wrote, they are neither extra nor verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lake import RangeProof
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.remotes import is_different_topic, known_id
from mirrorlake.model.verify import Difference
from mirrorlake.verify.comparison_results import range_passes
from mirrorlake.verify.cut import RUN_COLUMNS
from mirrorlake.verify.feeds import FeedTarget, FetchedPart
from mirrorlake.verify.offset_columns import OffsetColumns, join_columns
from mirrorlake.verify.offset_ranges import OffsetRange, OffsetRanges
from mirrorlake.verify.runners import RunnerChoice
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.target_proofs import build_proofs, count_verified, proofs_without_records
from mirrorlake.verify.target_ranges import find_due_offsets, ranges_to_fetch
from mirrorlake.verify.target_side import FeedKey, TargetResult, TargetSide, by_feed, find_last_ends, targets_of
from mirrorlake.verify.unit import ComparisonUnit, FeedSpec, group_by_shared_feed


def compare_with_target(
    side: TargetSide, admin: ClusterAdmin, scope: Scope, capacity: RunnerChoice, tell: Callable[[int], None]
) -> TargetResult:
    """Compare the due records of the chosen flows with the target.

    Raises:
        ClusterError: the target does not answer.
    """
    hop = TargetResult()
    mine = {piece.target for piece in side.summaries if piece.key.flow in side.chosen}
    states = admin.describe({tp.topic for tp in mine})
    hop.differences += [
        Difference.at(tp, -1, where="target", problem="missing") for tp in sorted(mine) if tp.topic not in states
    ]
    there = sorted(tp for tp in mine if tp.topic in states and tp.partition < states[tp.topic].partitions)
    earliest = admin.log_start_offsets(there)
    ends = {tp: side.cut.ends.get(tp, end) for tp, end in find_last_ends(side).items() if tp in earliest}
    held = {tp: OffsetRange(earliest[tp], ends[tp]) for tp in there}
    places = find_due_offsets(side)
    ids = {name: known_id(state.topic_id) for name, state in states.items()}
    compacting = _compacting(admin, states)
    written = _tombstones(side, ids)
    for chosen in range_passes(ranges_to_fetch(side, places, held, scope)):
        workers = capacity.choose(chosen.values())
        units = _units(side, chosen, compacting, written, workers.max_partitions)
        results = workers.compare(units, relay_of=lambda feed: side.relay_of(feed.key), admin=admin, tell=tell)
        hop.add(results, where="target")
        for result in results:
            count_verified(hop, result, places)
            hop.proofs += build_proofs(side, result, places, held, ids, scope)
    if scope.is_whole:
        hop.proofs += proofs_without_records(side, places, held, ids)
    hop.proofs = [_at_cut(side, proof, ends) for proof in hop.proofs]
    return hop


def _at_cut(side: TargetSide, proof: RangeProof, ends: Mapping[TopicPartition, int]) -> RangeProof:
    """Add the ends of the cut to a proof."""
    positions = side.cut.maps.positions.get(proof.flow or "", {})
    end = None
    if proof.target_topic is not None and proof.target_partition is not None:
        end = ends.get(TopicPartition(proof.target_topic, proof.target_partition))
    return replace(proof, upstream_end=positions.get(proof.partition), downstream_end=end)


def _units(
    side: TargetSide,
    chosen: Mapping[TopicPartition, OffsetRange],
    compacting: frozenset[str],
    written: Mapping[TopicPartition, OffsetRanges],
    together: int,
) -> list[ComparisonUnit]:
    order = sorted(tp for tp, span in chosen.items() if span.first < span.end)
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "first": chosen[tp].first, "end_at": chosen[tp].end}
        for tp in order
    ]
    kinds = [("topic", pa.string()), ("partition", pa.int32()), ("first", pa.int64()), ("end_at", pa.int64())]
    found = side.cut.maps.table(
        f"SELECT {RUN_COLUMNS} FROM {{runs}} AS r JOIN {{wanted}} AS w ON r.target_topic = w.topic "  # noqa: S608
        "AND r.target_partition = w.partition WHERE r.first_downstream < w.end_at "
        "AND r.first_downstream + r.record_count > w.first",
        tables={"wanted": pa.Table.from_pylist(rows, schema=pa.schema(kinds))},
    )
    feeds = dict(by_feed(found))
    of_target: dict[TopicPartition, set[FeedKey]] = {tp: set() for tp in order}
    for key, runs in feeds.items():
        for pair in set(targets_of(runs)):
            of_target[TopicPartition(*pair)].add(key)
    own = _with_own_records(side)
    units = []
    parts = ((frozenset[Any](of_target[tp]) or frozenset([tp]), number) for number, tp in enumerate(order))
    for numbers in group_by_shared_feed(parts, together):
        partitions = [order[number] for number in numbers]
        keys = sorted({key for tp in partitions for key in of_target[tp]})
        units.append(
            ComparisonUnit(
                alias=side.alias,
                options=side.options,
                partitions=tuple(partitions),
                fetched=tuple(
                    FetchedPart(
                        span=chosen[tp],
                        own=own.get(tp.topic),
                        compacts=tp.topic in compacting,
                        tombstones=written.get(tp, OffsetRanges()),
                    )
                    for tp in partitions
                ),
                feeds=tuple(_feed(side, key, feeds[key], partitions, chosen) for key in keys),
                fed_is_source=True,
            )
        )
    return units


def _feed(
    side: TargetSide,
    key: FeedKey,
    runs: pa.Table,
    partitions: Sequence[TopicPartition],
    chosen: Mapping[TopicPartition, OffsetRange],
) -> FeedSpec:
    numbers = {tp: number for number, tp in enumerate(partitions)}
    versions = runs.column("view").to_pylist()
    ways = [(numbers[TopicPartition(*pair)], version) for pair, version in zip(targets_of(runs), versions, strict=True)]
    distinct = sorted(set(ways), key=lambda way: (way[0], way[1] or ""))
    number_of = {way: number for number, way in enumerate(distinct)}
    labels = np.array([number_of[way] for way in ways], np.int64)
    whole = OffsetColumns.from_runs(runs, labels)
    target_of = np.array([target for target, _ in distinct])[whole.labels]
    places = join_columns(
        whole.where(target_of == number).downstream_within(*chosen[tp]) for tp, number in numbers.items()
    )
    view = side.views.get(key.flow)
    return FeedSpec(
        key=key,
        source=key.source,
        offsets=places,
        targets=tuple(
            FeedTarget(
                target=target, version=version, view=view if version and view and view.version == version else None
            )
            for target, version in distinct
        ),
        removed=side.removed_of(key),
    )


def _with_own_records(side: TargetSide) -> dict[str, frozenset[str]]:
    """Return the remote topics that applications of the target may write to, with the sources of their flows.

    Each record of such a flow names its source in its last hop (`model/loops/hops.py`).
    """
    writers: dict[str, set[str]] = {}
    for piece in side.summaries:
        writers.setdefault(piece.target.topic, set()).add(piece.key.flow)
    flows: Mapping[str, FlowConfig] = side.cut.flows
    return {
        topic: frozenset(flows[name].source for name in names)
        for topic, names in writers.items()
        if all(flows[name].adds_hops for name in names)
    }


def _tombstones(side: TargetSide, ids: Mapping[str, str]) -> dict[TopicPartition, OffsetRanges]:
    """Return the offsets of erasures' tombstones in the present remote topics."""
    found: dict[TopicPartition, OffsetRanges] = {}
    for one in side.tombstones:
        if not is_different_topic(one.topic_id, ids.get(one.partition.topic, "")):
            spans = OffsetRanges((first, first + length) for first, length in one.ranges)
            found[one.partition] = found.get(one.partition, OffsetRanges()) + spans
    return found


def _compacting(admin: ClusterAdmin, topics: Iterable[str]) -> frozenset[str]:
    """Return the compacted remote topics, or none if their settings may not be read."""
    with suppress(ClusterError):
        policies = {name: settings.get("cleanup.policy") for name, settings in admin.configs(topics).items()}
        if bare := [name for name, policy in policies.items() if policy is None]:
            # A topic without a policy uses the brokers'.
            default = admin.default_cleanup(bare)
            policies = {name: policy or default for name, policy in policies.items()}
        return frozenset(name for name, policy in policies.items() if "compact" in (policy or ""))
    return frozenset()
