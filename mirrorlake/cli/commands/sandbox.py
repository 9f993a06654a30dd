"""`mirrorlake sandbox up / down / status`: real brokers on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.command import Invocation, app, command
from mirrorlake.cli.help_groups import find_group

if TYPE_CHECKING:
    from mirrorlake.sandbox import SandboxRow

sandbox = typer.Typer(help="Run real local brokers for the clusters of a settings file.", no_args_is_help=True)
app.add_typer(sandbox, name="sandbox", rich_help_panel=find_group("sandbox"))

StateDirectory = Annotated[Path, typer.Option("--state", help="Where brokers keep data, logs and pids.")]
_STATE = Path(".mirrorlake/sandbox")


@command(sandbox)
def up(
    cli: Invocation,
    state: StateDirectory = _STATE,
    records: Annotated[
        int, typer.Option("--records", min=0, help="Write so many sample records into the topics of each source.")
    ] = 0,
) -> int:
    """Start a broker for every cluster of the file; the brokers stay on until down."""
    from mirrorlake.config import load
    from mirrorlake.sandbox import Sandbox, sample_topics, write_sample_traffic

    config = load(cli.conf)
    addresses = {alias: one.servers() for alias, one in config.clusters.items() if not one.is_lake}
    rows = Sandbox(state).up(addresses)
    for alias in addresses.keys() & {*config.sources} if records else ():
        if topics := sample_topics(config.flows_from(alias)):
            write_sample_traffic(addresses[alias], region=alias, records=records, topics=topics)
            cli.note(f"{alias}: {records:,} sample records in {', '.join(topics)}")
        else:
            cli.note(f"{alias}: no flow takes one of the sample topics")
    return _show(cli, rows)


@command(sandbox)
def down(
    cli: Invocation,
    state: StateDirectory = _STATE,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the brokers' data, too.")] = False,
) -> int:
    """Stop the brokers; their data is kept."""
    from mirrorlake.sandbox import Sandbox

    return _show(cli, Sandbox(state).down(purge=purge))


@command(sandbox)
def status(cli: Invocation, state: StateDirectory = _STATE) -> int:
    """Show which brokers run."""
    from mirrorlake.sandbox import Sandbox

    return _show(cli, Sandbox(state).status())


def _show(cli: Invocation, rows: list[SandboxRow]) -> int:
    cli.document({"clusters": rows})
    cli.table("sandbox", ["alias", "address", "pid", "state", "log"], rows)
    return 0
