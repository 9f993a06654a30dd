"""The base of every command: the options `--conf` and `--json`, the mirror of the settings file, and the output."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mirrorlake.cli.help_groups import GroupedCommands, find_group
from mirrorlake.cli.hidden_imports import hide_unused_imports
from mirrorlake.cli.output import Output

if TYPE_CHECKING:
    from mirrorlake.mirror import Mirror

app = typer.Typer(
    name="mirrorlake",
    cls=GroupedCommands,
    help="Mirror Kafka topics between clusters through Delta Lake, exactly once, with an exact offset map.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    epilog="Exit codes: 0 fine, 1 finding, 2 bad use or configuration, 3 refused for safety, 4 a cluster or store failed.",
)

Conf = Annotated[
    Path | None,
    typer.Option(
        "--conf", help="The settings file.", show_default="conf/mirror.yml or the only conf/*.yml, here or above"
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else there.")
]
Wide = Annotated[bool, typer.Option("--wide", help="Print all columns and whole names, however wide.")]
Flow = Annotated[str | None, typer.Option("--flow", help="The flow, e.g. 'east->central'; all flows without it.")]
OneFlow = Annotated[str, typer.Option("--flow", help="The flow, e.g. 'east->central'.")]
Source = Annotated[str, typer.Option("--source", help="The alias of the source cluster.")]
Generation = Annotated[
    int | None,
    typer.Option(
        "--generation", help="Generation of a topic that was created again or truncated; the newest without it."
    ),
]

Command = TypeVar("Command", bound=Callable[..., int])


class Invocation(Output):
    def __init__(self, conf: Path | None, *, as_json: bool, wide: bool = False) -> None:
        super().__init__(as_json=as_json, wide=wide)
        self._conf = conf

    @cached_property
    def conf(self) -> Path:
        """The settings file: the given one, else the usual one from the working directory upwards."""
        # A named file never stands for one of the same name further up.
        from mirrorlake.config import find_settings

        return find_settings() if self._conf is None else self._conf.expanduser().absolute()

    @cached_property
    def mirror(self) -> Mirror:
        """The mirror of the settings file; nothing is started and no cluster is called."""
        hide_unused_imports()
        from mirrorlake.mirror import load

        return load(self.conf, display=self.display)


def command(into: typer.Typer = app, *, conf: Path | None = None) -> Callable[[Command], Command]:
    """Register a function as a command: it gets an `Invocation`, then its own options, and returns the exit code."""

    def join(function: Command) -> Command:
        signature = inspect.signature(function, eval_str=True)
        options = [
            *(option.replace(kind=Parameter.KEYWORD_ONLY) for option in list(signature.parameters.values())[1:]),
            Parameter("conf", Parameter.KEYWORD_ONLY, default=conf, annotation=Conf),
            Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json),
            Parameter("wide", Parameter.KEYWORD_ONLY, default=False, annotation=Wide),
        ]

        @wraps(function)
        def run(*, conf: Path | None, as_json: bool, wide: bool, **given: Any) -> int:
            return function(Invocation(conf, as_json=as_json, wide=wide), **given)

        run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {option.name: option.annotation for option in options}
        into.command(rich_help_panel=find_group(function.__name__) if into is app else None)(run)
        return function

    return join
