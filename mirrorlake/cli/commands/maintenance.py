"""Keep the lake small."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.command import Invocation, command


@command()
def maintain(
    cli: Invocation,
    plan: Annotated[bool, typer.Option("--plan", "--dry-run", help="Only look.")] = False,
) -> int:
    """Rewrite small files of the lake, let go what is past its retention, clean logs; exit 1 where something could not be done."""
    done = cli.mirror.maintain(plan=plan)
    cli.answer(done)
    return 0 if done.ok else 1
