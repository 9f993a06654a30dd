"""What the demo says: progress while it works, and at the end a summary that is understood at a glance."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mirrorlake.cli.output import Output
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.offset_map import Exact, InHole, Translation
from mirrorlake.sandbox.traffic import SampleTraffic

if TYPE_CHECKING:
    from mirrorlake.mirror.flow import FlowHandle
    from mirrorlake.model.verify import PartitionProof, VerifyReport

_COUNTED = "records"
_COUNTS = ("written", "landed", "republished", "verified")
_SOME = 10


@dataclass(slots=True)
class Clock:
    """How long a phase took, once it is over."""

    seconds: float = 0.0


class Progress:
    """Show on standard error what is being done: with a spinner on a terminal, as plain lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False)

    @contextmanager
    def phase(self, doing: str) -> Iterator[Clock]:
        """Show a phase while it lasts, and its length when it went well."""
        clock, began = Clock(), time.monotonic()
        if self._console.is_terminal:
            with self._console.status(doing):
                yield clock
        else:
            self.say(f"… {doing}")
            yield clock
        clock.seconds = round(time.monotonic() - began, 2)
        self.say(f"✓ {doing}  {clock.seconds:.1f} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOffset:
    """An upstream offset after an aborted transaction, its downstream offset, and the way back; one aborted offset."""

    flow: str
    topic: str
    partition: int
    upstream_offset: int
    remote_topic: str
    downstream_offset: int | None
    back_to: int | None
    aborted_offset: int
    aborted_status: str
    resume_at: int | None

    @classmethod
    def of(
        cls, flow: FlowHandle, tp: TopicPartition, offset: int, *, there: Translation, aborted: Translation
    ) -> DemoOffset:
        """Translate back what was translated, and put both into words."""
        downstream, back = None, None
        remote = flow.config.remote_topic(tp.topic)
        if isinstance(there, Exact):
            downstream = there.offset
            found = flow.offsets.translate_back(remote, there.partition.partition, downstream)
            back = found.offset if isinstance(found, Exact) else None
        return cls(
            flow=flow.name,
            topic=tp.topic,
            partition=tp.partition,
            upstream_offset=offset,
            remote_topic=remote,
            downstream_offset=downstream,
            back_to=back,
            aborted_offset=offset - 2,
            aborted_status=aborted.status,
            resume_at=aborted.resume_at if isinstance(aborted, InHole) else None,
        )

    @property
    def exact(self) -> bool:
        """Tell whether the offset was found there and back."""
        return self.downstream_offset is not None and self.back_to == self.upstream_offset


@dataclass(slots=True, kw_only=True)
class Story:
    """What happened in one demo."""

    conf: Path
    config: MirrorConfig
    root: Path
    traffic: Mapping[str, SampleTraffic] = field(default_factory=dict)
    landed: int = 0
    republished: int = 0
    flows: tuple[VerifyReport, ...] = ()
    relays: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    translated: DemoOffset | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def written(self) -> int:
        """Return how many records a reader of the sources sees."""
        return sum(traffic.records for traffic in self.traffic.values())

    @property
    def aborted(self) -> int:
        """Return how many records aborted transactions left on the sources."""
        return sum(sum(traffic.aborted.values()) for traffic in self.traffic.values())

    @property
    def verified(self) -> int:
        """Return how many records were found equal on source, relay and target."""
        return sum(proof.verified for flow in self.flows for proof in flow.partitions)

    @property
    def equal(self) -> bool:
        """Tell whether everything that was written is on the targets, in its place and unchanged."""
        complete = self.written == self.landed == self.republished == self.verified
        translated = self.translated is not None and self.translated.exact
        return complete and translated and all(flow.equal for flow in self.flows)

    def written_to(self, flow: str, topic: str, partition: int) -> int:
        """Return how many records a flow's source partition was given."""
        source = self.config.flow(flow).source
        return self.traffic[source].committed.get(TopicPartition(topic, partition), 0)


def document(story: Story) -> dict[str, Any]:
    """Return the story as the JSON document."""
    return {
        "equal": story.equal,
        "clusters": {alias: cluster.servers() for alias, cluster in story.config.clusters.items()},
        "lake": str(story.root),
        "records": {
            "written": story.written,
            "aborted": story.aborted,
            "landed": story.landed,
            "republished": story.republished,
            "verified": story.verified,
        },
        "flows": [
            {
                "flow": flow.flow,
                "equal": flow.equal,
                "partitions": [
                    {
                        **asdict(proof),
                        "remote_topic": story.config.flow(flow.flow).remote_topic(proof.topic),
                        "written": story.written_to(flow.flow, proof.topic, proof.partition),
                    }
                    for proof in flow.partitions
                ],
                "differences": [asdict(difference) for difference in flow.differences],
            }
            for flow in story.flows
        ],
        "translation": None if story.translated is None else asdict(story.translated),
        "relays": {alias: {"files": files, "bytes": size} for alias, (files, size) in story.relays.items()},
        "seconds": {**story.seconds, "total": round(sum(story.seconds.values()), 2)},
        "next": dict(_next(story)),
    }


def show(story: Story, output: Output) -> None:
    """Print the story for people."""
    rows = [row for flow in story.flows for row in _rows(story, flow)]
    width = max(len(_COUNTED), *(len(row[0]) for row in rows))
    output.say()
    output.say(_line((_COUNTED, "partitions", *_COUNTS), width))
    for row in rows:
        output.say(_line(row, width))
    output.say()
    if story.equal:
        output.say(f"✓ All {story.verified:,} records are on {_targets(story)} once, in order and unchanged;")
        output.say(f"  the {story.aborted:,} records of aborted transactions are not.")
    else:
        output.say(f"✗ {story.written:,} records were written, {story.verified:,} are proven to have arrived.")
    for flow in story.flows:
        for found in flow.differences[:_SOME]:
            output.say(f"  {flow.flow}: {found.where}: {found.problem} {found.topic}-{found.partition}@{found.offset}")
        if len(flow.differences) > _SOME:
            output.say(f"  {flow.flow}: and {len(flow.differences) - _SOME} more")
    output.say()
    _show_translation(story, output)
    for alias, (files, size) in story.relays.items():
        output.say(f"Relay of {alias}: {files} files, {size / 1e6:.1f} MB in {_short(story.root / 'relay' / alias)}")
    _show_speed(story, output)
    output.say()
    output.say("Next")
    for what, command in _next(story):
        output.say(f"  {what}:\n    {command}")


def _rows(story: Story, flow: VerifyReport) -> Iterator[tuple[str, ...]]:
    """Return a line that names the flow and one line a remote topic."""
    yield (flow.flow,)
    by_topic: dict[str, list[PartitionProof]] = {}
    for proof in flow.partitions:
        by_topic.setdefault(proof.topic, []).append(proof)
    for topic, proofs in by_topic.items():
        written = sum(story.written_to(flow.flow, topic, proof.partition) for proof in proofs)
        counts = [written, *(sum(getattr(proof, what) for proof in proofs) for what in _COUNTS[1:])]
        mark = "✓" if len(set(counts)) == 1 else "✗"
        remote = story.config.flow(flow.flow).remote_topic(topic)
        yield f"  {remote}", str(len(proofs)), *(f"{count:,}" for count in counts), mark


def _line(cells: Sequence[str], width: int) -> str:
    first, *numbers = cells
    places = (len("partitions"), *(max(len(count), 7) for count in _COUNTS), 1)
    padded = [f"{cell:>{place}}" for cell, place in zip(numbers, places, strict=False)]
    return "  ".join([f"{first:<{width}}", *padded]).rstrip()


def _targets(story: Story) -> str:
    return " and ".join(story.config.targets)


def _show_translation(story: Story, output: Output) -> None:
    found = story.translated
    if found is None:
        return
    flow = story.config.flow(found.flow)
    there = f"{flow.source} {found.topic}-{found.partition}@{{}}".format
    back = f"{flow.target} {found.remote_topic}-{found.partition}@{{}}".format
    output.say("Offsets next to an aborted transaction")
    if found.downstream_offset is None:
        output.say(f"  ✗ {there(found.upstream_offset)} has no counterpart")
    else:
        output.say(f"  {there(found.upstream_offset)}  ->  {back(found.downstream_offset)}")
        output.say(f"  {back(found.downstream_offset)}  ->  {there(found.back_to)}")
    if found.resume_at is not None:
        output.say(f"  {there(found.aborted_offset)}  ->  aborted; a reader goes on at {back(found.resume_at)}")
    output.say()


def _show_speed(story: Story, output: Output) -> None:
    seconds = story.seconds
    rates = ", ".join(
        f"{what} {records / seconds[phase]:,.0f}"
        for what, records, phase in (
            ("landed", story.landed, "land"),
            ("republished", story.republished, "republish"),
            ("verified", story.verified, "verify"),
        )
    )
    output.say(f"Records a second: {rates}; {sum(seconds.values()):.0f} s in all.")
    output.say("  That is a Spark that starts and warms up; `make bench` measures throughput.")


def _next(story: Story) -> Iterator[tuple[str, str]]:
    here = Path(sys.executable).parent
    python, command = _short(Path(sys.executable)), _short(here / "mirrorlake")
    alias = next(iter(story.relays), "east")
    relay = str(story.root / "relay" / alias)
    query = f"SELECT topic, count(*) AS records, max(timestamp) AS newest FROM delta.`{relay}` GROUP BY topic"  # noqa: S608
    code = f'import mirrorlake as ml; ml.load("{story.conf}").spark.sql("{query}").show(truncate=False)'
    yield "ask the relay with SQL", f"{python} -c {shlex.quote(code)}"
    yield "walk through it in a notebook", "make lab"
    yield "mirror your own clusters", f"cp conf/example.yml conf/mirror.yml, edit it, then {command} doctor"


def _short(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
