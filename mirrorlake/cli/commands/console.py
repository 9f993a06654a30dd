"""The console as a read-only page in any browser."""

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
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Listen at this port.")] = 8866,
    host: Annotated[
        str, typer.Option("--host", help="Listen at this address; only loopback keeps the link on this machine.")
    ] = _LOOPBACK,
) -> int:
    """Serve the console as a read-only page in any browser.

    It ends by Ctrl-C.
    """
    try:
        from mirrorlake.notebook.web import build_app, serve
    except ImportError as error:
        raise UsageError(
            f"the page needs Starlette and uvicorn, and {error.name} is not installed",
            consequence="nothing was started",
            remedy="pip install 'mirrorlake[notebook]'",
        ) from None
    from mirrorlake.mirror import utc_now

    token = secrets.token_urlsafe(24)
    app = build_app(cli.mirror, token=token, port=port, now=utc_now)
    link = page_link(host, port, token)

    def ready() -> None:
        cli.document({"link": link})
        cli.say(f"console: {link}")
        # Whoever started it reads the link now, and not when it ends.
        sys.stdout.flush()
        if host not in (_LOOPBACK, "localhost", "::1"):
            cli.note(f"{host} is not loopback: whoever reads the traffic reads the token, too")

    asyncio.run(serve(app, host=host, port=port, ready=ready))
    return 0


def page_link(host: str, port: int, token: str) -> str:
    """Return the link to the page; the machine's name stands for the address of all its networks."""
    shown = socket.gethostname() if host in _EVERYWHERE else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/?token={token}"
