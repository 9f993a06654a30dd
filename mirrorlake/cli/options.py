"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Conf = Annotated[Path, typer.Option("--conf", help="The settings file.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else there.")
]
OneFlow = Annotated[str, typer.Option("--flow", help="The flow, e.g. 'east->central'.")]
DEFAULT_CONF = Path("conf/mirror.yml")
