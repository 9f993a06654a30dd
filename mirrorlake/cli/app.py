"""Run a command, and end with its exit code; an error is one sentence."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from mirrorlake import __version__
from mirrorlake.cli.command import app
from mirrorlake.cli.commands import (  # noqa: F401  each module adds its commands to `app`
    console,
    events,
    failover,
    lag,
    maintenance,
    offsets,
    records,
    replay,
    sandbox,
    settings,
    streams,
    tables,
    topics,
    verify,
)
from mirrorlake.cli.output import Output, guard_streams, log_to_stderr
from mirrorlake.crash_points import acts_of_environment
from mirrorlake.errors import MirrorlakeError, StoreError, UsageError
from mirrorlake.model.causes import root_cause
from mirrorlake.timing import timing

log = logging.getLogger(__name__)


def _say_version(asked: bool) -> None:
    if asked:
        print(__version__)  # noqa: T201  an answer, before any command is known
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None, *, commands: typer.Typer = app) -> NoReturn:
    """Run one command and exit with its code; a user's mistake never ends in a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    ending = _Ending()
    if arguments is None:
        # Imported objects are permanent: collecting cycles among them takes 6 percent of a command.
        gc.set_threshold(50_000)
        # Exit handlers run in reverse order: this one runs after those registered later, such as Spark's.
        atexit.register(ending.leave)
        guard_streams()
    output = Output(as_json="--json" in given)
    log_to_stderr(os.environ.get("MIRRORLAKE_LOG"), as_json=output.as_json)
    try:
        timing()
        acts_of_environment()
        code = commands(given, standalone_mode=False)
        if arguments is None:
            sys.stdout.flush()
    except MirrorlakeError as error:
        output.error(error)
        code = error.exit_code
    except TyperException as error:
        if text := error.format_message():
            output.error(UsageError(text, remedy="mirrorlake --help, or mirrorlake COMMAND --help"))
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except SystemExit as ended:
        # The reader of standard output is gone.
        code = ended.code
    except Exception as error:
        if os.environ.get("MIRRORLAKE_DEBUG"):
            raise
        output.error(_unforeseen(error))
        code = 4
    ending.code = int(code or 0)
    sys.exit(ending.code)


class _Ending:
    """End the process without the interpreter's clean-up.

    Spark's client has threads that wait for ever, and DuckDB then prints 50 lines about its own objects to standard error.
    """

    code = 1

    def leave(self) -> None:
        # Either may have failed, which the code already tells.
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(self.code)


def _unforeseen(error: Exception) -> MirrorlakeError:
    """Return an unexpected error as one sentence; log its traceback at level DEBUG."""
    log.debug("cli.unforeseen", exc_info=error)
    cause = root_cause(str(error) or type(error).__name__)
    consequence = "the command stopped; what it had done by then stands, and what was under way may or may not"
    remedy = "mirrorlake doctor and mirrorlake status; MIRRORLAKE_DEBUG=1 in the environment shows where it happened"
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "delta"):
        return StoreError(f"Spark could not carry it out: {cause}", consequence=consequence, remedy=remedy)
    what = f"mirrorlake met an unexpected error, {type(error).__name__}: {cause}"
    return MirrorlakeError(what, consequence=consequence, remedy=remedy)
