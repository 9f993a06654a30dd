"""The console as a page in any browser."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
from typing import Annotated

import typer

from mirrorlake.cli.command import Invocation, command
from mirrorlake.errors import UsageError

_LOOPBACK = "127.0.0.1"
# Listening there is listening everywhere; no browser of another machine can open it.
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104


@command()
def console(
    cli: Invocation,
    write: Annotated[
        bool, typer.Option("--write", help="Let the page change things: apply, run, pause, move groups, cut over.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Listen at this port.")] = 8866,
    host: Annotated[
        str, typer.Option("--host", help="Listen at this address; only loopback keeps the link on this machine.")
    ] = _LOOPBACK,
) -> int:
    """Serve the console as a page in any browser.

    It is read-only without --write, and ends by Ctrl-C.
    """
    try:
        from mirrorlake.notebook.web import serve
    except ImportError as error:
        raise UsageError(
            f"the page needs Voilà and Jupyter's widgets, and {error.name} is not installed",
            consequence="nothing was started",
            remedy="pip install 'mirrorlake[notebook]'",
        ) from None
    # Mistakes in the settings belong here, and not on the page.
    conf = str(cli.mirror.config.path or cli.conf)
    token = secrets.token_urlsafe(24)
    code = f"from mirrorlake.notebook.console.page import open_console\nopen_console({conf!r}, write={write})"
    link = page_link(host, port, token)

    def ready() -> None:
        cli.document({"link": link, "write": write})
        cli.say(f"console: {link}")
        # Whoever started it reads the link now, and not when it ends.
        sys.stdout.flush()
        cli.note("may change things" if write else "read-only; --write lets it change things")
        if host not in (_LOOPBACK, "localhost", "::1"):
            cli.note(f"{host} is not loopback: whoever reads the traffic reads the token, too")

    asyncio.run(serve(code, host=host, port=port, token=token, ready=ready))
    return 0


def page_link(host: str, port: int, token: str) -> str:
    """Return the link to the page; the machine's name stands for the address of all its networks."""
    shown = socket.gethostname() if host in _EVERYWHERE else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/?token={token}"
