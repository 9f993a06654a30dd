"""Offsets and groups: the exact counterpart of a position, and each group's resume position at the target."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.command import Generation, Invocation, OneFlow, command
from mirrorlake.errors import UsageError
from mirrorlake.render import document, plural

if TYPE_CHECKING:
    from mirrorlake.model.groups import GroupPosition


@command()
def offsets(
    cli: Invocation,
    flow: OneFlow,
    topic: Annotated[str | None, typer.Option("--topic", help="Source topic; the remote topic with --reverse.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="The partition of this topic.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="The offset in this partition.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="From a downstream offset to the upstream one.")] = False,
    generation: Generation = None,
    positions: Annotated[
        str | None, typer.Option("--positions", help="A JSON file of positions (- for standard input) to translate.")
    ] = None,
    spark_checkpoint: Annotated[
        str | None, typer.Option("--spark-checkpoint", help="A Spark query's checkpoint location to translate.")
    ] = None,
) -> int:
    """Show an offset's exact counterpart, or why it has none.

    Or translate a reader's positions.
    """
    from mirrorlake.model.offset_map import Exact

    if positions is not None or spark_checkpoint is not None:
        return _positions(cli, flow, positions, spark_checkpoint)
    if topic is None or partition is None or offset is None:
        raise UsageError(
            "no offset is given",
            remedy="add --topic, --partition and --offset; or --positions FILE; or --spark-checkpoint PATH",
        )
    found = cli.mirror.translate(
        flow, topic=topic, partition=partition, offset=offset, generation=generation, reverse=reverse
    )
    other = found.offset if isinstance(found, Exact) else None
    place = found.partition if isinstance(found, Exact) else None
    more = {key: value for key, value in document(found).items() if key not in ("offset", "partition", "status")}
    cli.document(
        {
            "status": found.status,
            "upstream_offset": other if reverse else offset,
            "downstream_offset": offset if reverse else other,
            "topic": place.topic if place else topic,
            "partition": place.partition if place else partition,
            **more,
        }
    )
    direction = "<-" if reverse else "->"
    cli.say(f"{topic}-{partition}@{offset} {direction} {f'{place}@{other}' if place else found.sheet().summary()}")
    return 0


def _positions(cli: Invocation, flow: str, file: str | None, checkpoint: str | None) -> int:
    known = cli.mirror[flow].offsets
    moved = known.move_positions(_read(str(file))) if checkpoint is None else known.move_spark_query(checkpoint)
    cli.document({"positions": moved.document, "held": [_held(resume) for resume in moved.held]})
    cli.show(moved)
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


@command()
def groups(
    cli: Invocation,
    flow: OneFlow,
    apply: Annotated[bool, typer.Option("--apply", help="Set the positions of groups inactive on the target.")] = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Take positions from the lake: the source is lost.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 if a group is to be moved or is held back.")] = False,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only this group; several times for several.")
    ] = None,
    members: Annotated[
        bool, typer.Option("--members", help="Show members, state and lag on both clusters instead.")
    ] = False,
) -> int:
    """Show where consumer groups resume; --apply moves them.

    Says of each group why it is not moved.
    """
    mirror = cli.mirror
    if members:
        if apply or recorded or check or group:
            raise UsageError(
                "--members shows all groups and changes nothing", remedy=f"mirrorlake groups --flow '{flow}' --members"
            )
        cli.answer(mirror.group_standing(flow))
        return 0
    call = mirror.apply_groups if apply else mirror.plan_groups
    plan = call(flow, recorded=recorded, groups=group)
    positions = [_group(position) for position in plan]
    nothing = dict.fromkeys(("topic", "partition", "upstream_offset", "downstream_offset"))
    positions += [{"group": one, **nothing, "action": "hold", "reason": why} for one, why in plan.unread.items()]
    cli.document({"flow": flow, "applied": apply, "groups": positions, "leaderless": list(plan.leaderless)})
    if mirror.config.flow(flow).source in mirror.config.lake_clusters:
        cli.say(f"{flow}: nobody consumes from a lake cluster, so there are no groups to carry over")
        return 0
    cli.show(plan)
    if apply:
        cli.say(f"{plural(len(plan.moves), 'position')} moved")
    return 1 if check and (plan.held or plan.unread or (plan.moves and not apply)) else 0


def _group(position: GroupPosition) -> dict[str, Any]:
    resume = position.resume
    return {
        "group": position.group,
        "topic": resume.source.topic,
        "generation": resume.source.generation,
        "partition": resume.source.partition,
        "upstream_offset": resume.upstream_offset,
        "remote_topic": resume.target.topic,
        "remote_partition": resume.target.partition,
        "downstream_offset": resume.downstream_offset,
        "target_offset": position.target_offset,
        "action": position.action,
        "reason": position.reason,
        "exact": resume.exact,
        "records_again": resume.records_again,
    }
