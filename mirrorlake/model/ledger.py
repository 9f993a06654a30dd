"""The ledger record: what one lane has republished, in the same transaction as the records themselves.

A record contains the mapped ranges of its own chunk and the positions (the next upstream offset per source partition)
that moved in it. A position is one of a source partition in one remote topic, by name and id: `remotes` names the
topics of the positions, and `earlier` has those in topics that the flow wrote under another policy. A full record
contains every position of the lane, so a new owner reads back to the last full record and folds the later ones
(`fold`). The record by which an owner claims a lane is a full one with the positions of all lanes (law F: a claim
never makes the ledger know less). The ledger is the truth, the `offset_map` table its copy
(docs/design.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.epochs import is_possible
from mirrorlake.model.flow import SourcePartition, TopicPartition, advance
from mirrorlake.model.lanes import of_lane
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.policy import TopicNameError
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.remotes import Remote
from mirrorlake.model.withheld import Withheld

VERSION = 5

EarlierPositions = Mapping[Remote, Mapping[SourcePartition, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The owner of a flow's lane, and the owner's checkpoint location: a number, 0 before the first one.

    `epoch` counts the owners of the flow: an owner that meets a higher epoch was replaced and stops.
    `batch` is the newest batch sent from it, or -1. `cluster_id` is the source's, or "" if it was never recorded.
    """

    flow: str
    lane: int = 0
    lanes: int
    epoch: int = 0
    owner: str = ""
    checkpoint_location: int = 0
    batch: int = -1
    scope: CheckpointScope = field(default_factory=CheckpointScope)
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """The change of a lane by one committed chunk, or the state of the whole lane after it.

    `seq` counts the records of the lane without a break, which exposes a missing record or copy. `withheld` are
    records of this chunk that the flow's view withheld. `view` is the view's version, or "". `remotes` are the remote
    topics, by source topic, in which the positions were reached (`model/remotes.py`). `full_seq` is the `seq` of the
    last full record, None in a full record. If the record `is_whole`, `positions` and `remotes` are those of the
    whole lane: in a full record, and in a result of `fold`. Only a full record has the `earlier` positions, which no
    sender moves.
    """

    claim: Claim
    seq: int
    positions: Mapping[SourcePartition, int] = field(default_factory=dict)
    runs: tuple[MappedRange, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    view: str = ""
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    earlier: EarlierPositions = field(default_factory=dict)
    committed_at_ms: int = 0
    full_seq: int | None = None
    is_whole: bool = True

    @property
    def base_seq(self) -> int:
        """The `seq` of the lane's last full record, up to this record."""
        return self.seq if self.full_seq is None else self.full_seq

    def to_json(self) -> bytes:
        claim = self.claim
        extra = {
            **({} if self.is_whole else {"full": self.full_seq}),
            **({"cluster_id": claim.cluster_id} if claim.cluster_id else {}),
            **({"withheld": [_withheld_to_list(item) for item in self.withheld]} if self.withheld else {}),
            **({"view": self.view} if self.view else {}),
            **({"remotes": {t: [r.name, r.topic_id] for t, r in sorted(self.remotes.items())}} if self.remotes else {}),
            **(
                {"earlier": [[r.name, r.topic_id, _positions_to_list(of)] for r, of in sorted(self.earlier.items())]}
                if self.earlier
                else {}
            ),
        }
        document = {
            "v": VERSION,
            "flow": claim.flow,
            "lane": claim.lane,
            "lanes": claim.lanes,
            "epoch": claim.epoch,
            "owner": claim.owner,
            "seq": self.seq,
            "checkpoint_location": claim.checkpoint_location,
            "batch": claim.batch,
            "scope": claim.scope.text,
            "positions": _positions_to_list(self.positions),
            "runs": [_run_to_list(run) for run in self.runs],
            "at": self.committed_at_ms,
            **extra,
        }
        return json.dumps(document if self.is_whole else _shortened(document), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> LedgerRecord:
        """Parse a record; ValueError if the bytes are not one, or one of another release."""
        try:
            document = json.loads(value)
            if document["v"] != VERSION:
                raise ValueError(f"a ledger record of version {document['v']}, and this release reads only {VERSION}")
            is_whole = "full" not in document
            if not is_whole:
                document = _lengthened(document)
            return cls(
                claim=Claim(
                    flow=document["flow"],
                    lane=document["lane"],
                    lanes=document["lanes"],
                    epoch=document["epoch"],
                    owner=document["owner"],
                    checkpoint_location=document["checkpoint_location"],
                    batch=document["batch"],
                    scope=CheckpointScope.read(document["scope"]),
                    cluster_id=document.get("cluster_id", ""),
                ),
                seq=document["seq"],
                positions=_positions_from_list(document["positions"]),
                runs=tuple(_run_from_list(item) for item in document["runs"]),
                withheld=tuple(_withheld_from_list(item) for item in document.get("withheld", ())),
                view=document.get("view", ""),
                remotes={topic: Remote(*item) for topic, item in document.get("remotes", {}).items()},
                earlier={Remote(*item): _positions_from_list(of) for *item, of in document.get("earlier", ())},
                committed_at_ms=document["at"],
                full_seq=document.get("full"),
                is_whole=is_whole,
            )
        except (KeyError, IndexError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"not a ledger record: {value[:80]!r}") from error


def supersedes(record: LedgerRecord, before: LedgerRecord | None) -> bool:
    """Return whether a record, read after another one of its lane, is the newer one.

    Without transactions (`at_least_once`) a replaced owner can still append: its records are on the target, but the
    lane does not continue from them. Impossible epochs do not count.
    """
    if before is None or not is_possible(before.claim.epoch):
        return True
    return (record.claim.epoch, record.seq) > (before.claim.epoch, before.seq)


def fold(records: Iterable[LedgerRecord], before: LedgerRecord | None = None) -> LedgerRecord | None:
    """Return the newest record of a lane with all positions and remote topics of the lane after it; None without a record.

    Law F (repeatable): the result equals the newest record if every record were full, wherever the reading began at or
    before the last full record. Otherwise the result is not `is_whole`, and no owner may resume from it.
    """
    newest, is_whole = before, before is not None and before.is_whole
    positions = dict(before.positions) if before else {}
    remotes = dict(before.remotes) if before else {}
    earlier = before.earlier if before else {}
    may_hold_other_lanes = True
    for record in records:
        is_same_owner = newest is not None and _owner(record) == _owner(newest)
        if not supersedes(record, newest):
            if is_same_owner:
                # Two workers of one owner without transactions: the target has what either has confirmed.
                advance(positions, record.positions)
            continue
        if record.is_whole:
            positions, remotes, earlier = dict(record.positions), dict(record.remotes), record.earlier
            is_whole = may_hold_other_lanes = True
        else:
            if newest is None or not is_same_owner or record.seq != newest.seq + 1:
                positions, remotes, earlier, is_whole = {}, {}, {}, False
            elif may_hold_other_lanes:
                # A claim contains the positions of all lanes, a sender's records those of its own lane.
                positions = of_lane(positions, record.claim.lane, lanes=record.claim.lanes)
                topics = {source.topic for source in positions}
                remotes = {topic: remote for topic, remote in remotes.items() if topic in topics}
                may_hold_other_lanes = False
            advance(positions, record.positions)
            remotes |= record.remotes
        newest = record
    if newest is None:
        return None
    return replace(newest, positions=positions, remotes=remotes, earlier=earlier, is_whole=is_whole)


def _owner(record: LedgerRecord) -> tuple[int, str]:
    return record.claim.epoch, record.claim.owner


@dataclass(frozen=True, slots=True)
class SentPositions:
    """A flow's positions by its ledger: in the remote topics of its present policy, and the `earlier` ones in others.

    `renamed` are the source topics whose records last went to a topic of another name.
    """

    positions: Mapping[SourcePartition, int]
    remotes: Mapping[str, Remote]
    earlier: EarlierPositions
    renamed: Mapping[str, Remote]


def merged_positions(last: Mapping[int, LedgerRecord | None], remote_topic: Callable[[str], str]) -> SentPositions:
    """Return the furthest position of each source partition in each remote topic; `last` is each lane's last record.

    A partition changes its lane if the number of lanes changes, and a claim carries the positions of all lanes. A position
    only grows, so the furthest one is the newest. Of the remote topics of one name, the newest owner's counts
    (`model/remotes.py`).
    """

    def name_of(topic: str) -> str:
        try:
            return remote_topic(topic)
        except TopicNameError:
            return ""

    sent: dict[tuple[str, str], tuple[Remote, dict[SourcePartition, int]]] = {}
    newest: dict[str, Remote] = {}

    def reach(topic: str, remote: Remote, moved: Mapping[SourcePartition, int]) -> None:
        known = sent.get((topic, remote.name))
        if known is None or known[0] != remote:
            known = sent[topic, remote.name] = remote, {}
        advance(known[1], moved)

    for record in sorted(filter(None, last.values()), key=lambda one: one.claim.epoch):
        newest |= record.remotes
        for topic, remote in record.remotes.items():
            reach(topic, remote, {})
        for source, at in record.positions.items():
            remote = record.remotes.get(source.topic) or Remote(name_of(source.topic))
            reach(source.topic, remote, {source: at})
        for remote, moved in record.earlier.items():
            for source, at in moved.items():
                reach(source.topic, remote, {source: at})
    positions: dict[SourcePartition, int] = {}
    remotes: dict[str, Remote] = {}
    earlier: dict[Remote, dict[SourcePartition, int]] = {}
    before: dict[str, Remote] = {}
    names = {topic: name_of(topic) for topic, _ in sent}
    for (topic, name), (remote, reached) in sent.items():
        if name == names[topic]:
            positions |= reached
            remotes[topic] = remote
        elif reached:
            earlier.setdefault(remote, {}).update(reached)
            before[topic] = newest.get(topic, remote)
    renamed = {topic: remote for topic, remote in before.items() if remote.name != names[topic]}
    return SentPositions(positions, remotes, earlier, renamed)


def _shortened(document: dict[str, Any]) -> dict[str, Any]:
    """Return a record that is not full with each topic named once, without the positions right after a mapped range."""
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    after_runs = {tuple(position) for position in _after_runs(document["runs"])}
    short = {
        **document,
        "positions": [
            [number(topic), *rest] for topic, *rest in document["positions"] if (topic, *rest) not in after_runs
        ],
        "runs": [[number(run[0]), *run[1:3], number(run[3]), *run[4:]] for run in document["runs"]],
    }
    if "remotes" in document:
        short["remotes"] = [
            [number(topic), number(name), topic_id] for topic, (name, topic_id) in document["remotes"].items()
        ]
    return {**short, "names": list(names)}


def _lengthened(document: dict[str, Any]) -> dict[str, Any]:
    names = document["names"]
    runs = [[names[run[0]], *run[1:3], names[run[3]], *run[4:]] for run in document["runs"]]
    return {
        **document,
        "positions": [*_after_runs(runs), *([names[at], *rest] for at, *rest in document["positions"])],
        "runs": runs,
        "remotes": {names[topic]: [names[name], topic_id] for topic, name, topic_id in document.get("remotes", ())},
    }


def _after_runs(runs: Iterable[list[Any]]) -> list[list[Any]]:
    """Return the positions right after the mapped ranges, in the record's form."""
    ends: dict[tuple[str, int, int], int] = {}
    for topic, generation, partition, _, _, _, last, *_ in runs:
        source = topic, generation, partition
        ends[source] = max(last + 1, ends.get(source, 0))
    return [[*source, end] for source, end in ends.items()]


def _flat(start: int, ranges: Iterable[tuple[int, int]]) -> list[int]:
    # Distances: a source with a marker every few records then costs about four bytes a hole.
    flat, last = [], start
    for first, length in ranges:
        flat += [first - last, length]
        last = first + length
    return flat


def _ranges(start: int, flat: list[int]) -> tuple[tuple[int, int], ...]:
    ranges, at = [], start
    for distance, length in zip(flat[::2], flat[1::2], strict=True):
        ranges.append((at + distance, length))
        at += distance + length
    return tuple(ranges)


def _positions_to_list(positions: Mapping[SourcePartition, int]) -> list[Any]:
    return [[tp.topic, tp.generation, tp.partition, offset] for tp, offset in sorted(positions.items())]


def _positions_from_list(items: Iterable[list[Any]]) -> dict[SourcePartition, int]:
    return {SourcePartition(topic, generation, partition): offset for topic, generation, partition, offset in items}


def _run_to_list(run: MappedRange) -> list[Any]:
    return [
        *(run.source.topic, run.source.generation, run.source.partition),
        *(run.target.topic, run.target.partition),
        *(run.first_upstream, run.last_upstream, run.first_downstream, run.count),
        _flat(run.first_upstream, run.holes),
    ]


def _run_from_list(item: list[Any]) -> MappedRange:
    topic, generation, partition, target, target_partition, first, last, downstream, count, flat = item
    return MappedRange(
        source=SourcePartition(topic, generation, partition),
        target=TopicPartition(target, target_partition),
        first_upstream=first,
        last_upstream=last,
        first_downstream=downstream,
        count=count,
        holes=_ranges(first, flat),
    )


def _withheld_to_list(item: Withheld) -> list[Any]:
    source, first = item.source, item.ranges.first
    return [
        *(source.topic, source.generation, source.partition),
        *(item.kind, item.rule, item.version, item.reason, first),
        _flat(first, item.ranges.pairs),
    ]


def _withheld_from_list(item: list[Any]) -> Withheld:
    topic, generation, partition, kind, rule, version, reason, first, flat = item
    return Withheld(
        source=SourcePartition(topic, generation, partition),
        kind=kind,
        rule=rule,
        version=version,
        reason=reason,
        ranges=Ranges.from_pairs(_ranges(first, flat)),
    )
