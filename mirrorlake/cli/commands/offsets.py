"""The command `offsets`: the exact counterpart of one offset, or of a reader's positions."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json, OneFlow
from mirrorlake.cli.output import Output
from mirrorlake.errors import UsageError

if TYPE_CHECKING:
    from mirrorlake.mirror import Mirror


def offsets(
    flow: OneFlow,
    topic: Annotated[str | None, typer.Option("--topic", help="Source topic; the remote topic with --reverse.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0)] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0)] = None,
    conf: Conf = DEFAULT_CONF,
    reverse: Annotated[bool, typer.Option("--reverse", help="From a downstream offset to the upstream one.")] = False,
    generation: Annotated[
        int | None, typer.Option("--generation", help="Life of a topic that was created again; default: the newest.")
    ] = None,
    positions: Annotated[
        str | None, typer.Option("--positions", help="A JSON file of positions (- for standard input) to translate.")
    ] = None,
    spark_checkpoint: Annotated[
        str | None, typer.Option("--spark-checkpoint", help="A Spark query's checkpoint location to translate.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show the exact counterpart of an offset, or the reason why there is none; or where a reader's positions go on."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    if positions is not None or spark_checkpoint is not None:
        return _positions(load(conf), flow, positions, spark_checkpoint, output)
    if topic is None or partition is None or offset is None:
        raise UsageError(
            "no offset is given",
            remedy="add --topic, --partition and --offset; or --positions FILE; or --spark-checkpoint PATH",
        )
    from mirrorlake.model.offset_map import Exact

    found = load(conf).translate(
        flow, topic=topic, partition=partition, offset=offset, generation=generation, reverse=reverse
    )
    other = found.offset if isinstance(found, Exact) else None
    place = found.partition if isinstance(found, Exact) else None
    document: dict[str, Any] = {
        "status": found.status,
        "upstream_offset": other if reverse else offset,
        "downstream_offset": offset if reverse else other,
        "topic": place.topic if place else topic,
        "partition": place.partition if place else partition,
    }
    document |= {key: value for key, value in asdict(found).items() if key not in ("offset", "partition", "status")}
    output.document(document)
    direction = "<-" if reverse else "->"
    output.say(f"{topic}-{partition}@{offset} {direction} {f'{place}@{other}' if place else found.sheet().summary()}")
    return 0


def _positions(mirror: Mirror, flow: str, file: str | None, checkpoint: str | None, output: Output) -> int:
    if checkpoint is not None:
        moved = mirror[flow].offsets.move_spark_query(checkpoint)
    else:
        moved = mirror[flow].offsets.move_positions(_read(str(file)))
    output.document({"positions": moved.document, "held": [_held(resume) for resume in moved.held]})
    output.show(moved)
    return 1 if moved.held else 0


def _held(resume: Any) -> dict[str, Any]:
    source = resume.source
    place = {"topic": source.topic, "partition": source.partition, "offset": resume.upstream_offset}
    return {**place, "reason": resume.reason}


def _read(file: str) -> Any:
    try:
        return json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} holds no JSON: {error}", remedy='name a file like {"orders": {"0": 17}}') from error
