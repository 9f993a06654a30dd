"""The commands, their options and their exit codes (DESIGN 6)."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from mirrorlake.cli.commands.conflicts import conflicts
from mirrorlake.cli.commands.control import pause, resume
from mirrorlake.cli.commands.groups import groups
from mirrorlake.cli.commands.history import history
from mirrorlake.cli.commands.import_mm2 import import_mm2
from mirrorlake.cli.commands.lag import lag
from mirrorlake.cli.commands.offsets import offsets
from mirrorlake.cli.commands.publish import publish
from mirrorlake.cli.commands.quarantine import quarantine
from mirrorlake.cli.commands.rebuild import rebuild
from mirrorlake.cli.commands.records import passport, records
from mirrorlake.cli.commands.repair import repair
from mirrorlake.cli.commands.report import report
from mirrorlake.cli.commands.rules import rules
from mirrorlake.cli.commands.runs import runs
from mirrorlake.cli.commands.sample import sample
from mirrorlake.cli.commands.takeover import takeover
from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json, OneFlow
from mirrorlake.cli.output import Output, log_to_stderr
from mirrorlake.cli.stopping import in_background
from mirrorlake.errors import MirrorlakeError, StoreError, UsageError
from mirrorlake.model.causes import root_cause

if TYPE_CHECKING:
    from mirrorlake.mirror import Mirror

log = logging.getLogger(__name__)

app = typer.Typer(
    name="mirrorlake",
    help="Mirror Kafka topics between clusters through Delta Lake, exactly once, with an exact offset map.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    epilog="Exit codes: 0 fine, 1 finding, 2 bad use or configuration, 3 refused for safety, 4 a cluster or store failed.",
)
sandbox_app = typer.Typer(help="Real local brokers for the clusters of a settings file.", no_args_is_help=True)
app.add_typer(sandbox_app, name="sandbox")

Flow = Annotated[str | None, typer.Option("--flow", help="The flow, e.g. 'east->central'; all flows without it.")]
Once = Annotated[
    bool, typer.Option("--once", help="Drain the records so far and stop; without it, stay on until SIGTERM.")
]
Rebuild = Annotated[
    bool, typer.Option("--rebuild-checkpoint", help="Make a new checkpoint location after the old one was lost.")
]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code; a user's mistake never ends in a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    output = Output(as_json="--json" in given)
    log_to_stderr(os.environ.get("MIRRORLAKE_LOG"))
    try:
        code = app(given, standalone_mode=False)
    except MirrorlakeError as error:
        output.error(error)
        code = error.exit_code
    except TyperException as error:
        if text := error.format_message():
            output.error(UsageError(text, remedy="mirrorlake --help, or mirrorlake COMMAND --help"))
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        if os.environ.get("MIRRORLAKE_DEBUG"):
            raise
        output.error(_unforeseen(error))
        code = 4
    sys.exit(int(code or 0))


def run_step(*command: str) -> NoReturn:
    """Run a command, followed by the process's own arguments; the one line of every job."""
    main([*command, *sys.argv[1:]])


def _unforeseen(error: Exception) -> MirrorlakeError:
    """Turn an unexpected error into one sentence; the traceback goes to the log, at level DEBUG."""
    log.debug("cli.unforeseen", exc_info=error)
    cause = root_cause(str(error) or type(error).__name__)
    consequence = "the command stopped; what it had done by then stands, and what was under way may or may not"
    remedy = "mirrorlake doctor and mirrorlake status; MIRRORLAKE_DEBUG=1 in the environment shows where it happened"
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "delta"):
        return StoreError(f"Spark could not carry it out: {cause}", consequence=consequence, remedy=remedy)
    what = f"mirrorlake met an unexpected error, {type(error).__name__}: {cause}"
    return MirrorlakeError(what, consequence=consequence, remedy=remedy)


def _mirror(conf: Path, output: Output) -> Mirror:
    from mirrorlake.mirror import load

    return load(conf, display=output.display)


@app.command()
def plan(
    conf: Conf = DEFAULT_CONF,
    flow: Flow = None,
    as_json: Json = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when there is something to change.")] = False,
) -> int:
    """Show what apply would change on the targets and in the lake; changes nothing."""
    output = Output(as_json=as_json)
    changes = _mirror(conf, output).plan(flow)
    output.document(asdict(changes))
    output.show(changes)
    return 1 if check and changes else 0


@app.command()
def apply(conf: Conf = DEFAULT_CONF, flow: Flow = None, as_json: Json = False) -> int:
    """Carry out what plan shows, and put the settings in force for running mirrors."""
    output = Output(as_json=as_json)
    changes = _mirror(conf, output).apply(flow)
    output.document(asdict(changes) | {"applied": True})
    output.show(changes)
    if done := sum(change.action != "held" for change in changes.changes):
        output.say(f"{done} change(s) applied")
    return 0


@app.command()
def land(
    source: Annotated[str, typer.Option("--source", help="The alias of the source cluster.")],
    conf: Conf = DEFAULT_CONF,
    once: Once = False,
    rebuild_checkpoint: Rebuild = False,
    as_json: Json = False,
) -> int:
    """Land the topics of one source cluster in its relay."""
    output = Output(as_json=as_json)
    mirror = _mirror(conf, output)
    done = in_background(lambda stop: mirror.land(source, once=once, stop=stop, rebuild_checkpoint=rebuild_checkpoint))
    output.document(asdict(done))
    output.show(done)
    return 0


@app.command()
def republish(
    flow: OneFlow,
    conf: Conf = DEFAULT_CONF,
    once: Once = False,
    rebuild_checkpoint: Rebuild = False,
    restore_ledger: Annotated[
        bool,
        typer.Option(
            "--restore-ledger", help="Start from the furthest position in ledger and lake after the ledger was lost."
        ),
    ] = False,
    topic: Annotated[
        str | None, typer.Option("--topic", help="A remote topic that was deleted or created again; with a way on.")
    ] = None,
    send_again: Annotated[
        bool, typer.Option("--send-again", help="With --topic: send everything again from the relay.")
    ] = False,
    accept_empty: Annotated[
        bool, typer.Option("--accept-empty", help="With --topic: go on there with what has not been sent yet.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Republish one flow from the relay into its target."""
    output = Output(as_json=as_json)
    mirror = _mirror(conf, output)
    done = in_background(
        lambda stop: mirror.republish(
            flow,
            once=once,
            stop=stop,
            rebuild_checkpoint=rebuild_checkpoint,
            restore_ledger=restore_ledger,
            topic=topic,
            send_again=send_again,
            accept_empty=accept_empty,
        )
    )
    output.document(asdict(done))
    output.show(done)
    return 0


@app.command()
def run(
    conf: Conf = DEFAULT_CONF,
    flow: Flow = None,
    once: Once = False,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=1, max=65535, help="Serve metrics for Prometheus at this port.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Land every source and republish every flow."""
    output = Output(as_json=as_json)
    mirror = _mirror(conf, output)
    done = in_background(lambda stop: mirror.run(flow, once=once, stop=stop, metrics_port=metrics_port))
    output.document({name: [asdict(one) for one in several] for name, several in done._asdict().items()})
    output.show(done)
    return 0


@app.command()
def status(conf: Conf = DEFAULT_CONF, flow: Flow = None, as_json: Json = False) -> int:
    """Show source end, landed, republished, lags and verdict per flow and partition."""
    output = Output(as_json=as_json)
    found = _mirror(conf, output).status(flow)
    output.document(found.as_dict())
    output.show(found)
    return 0


@app.command()
def verify(conf: Conf = DEFAULT_CONF, flow: Flow = None, as_json: Json = False) -> int:
    """Compare source, relay and target, by count and by content, and list every difference."""
    output = Output(as_json=as_json)
    found = _mirror(conf, output).verify(flow)
    output.document(found.as_dict())
    output.show(found)
    return 0 if found.equal else 1


@app.command()
def doctor(conf: Conf = DEFAULT_CONF, as_json: Json = False) -> int:
    """Check settings, Java, clusters, permissions, sizes, retention and the lake; name the failing layer and the fix."""
    output = Output(as_json=as_json)
    found = _mirror(conf, output).doctor()
    output.document({"findings": [asdict(one) for one in found]})
    output.show(found)
    if any(not one.ok and one.layer in ("cluster", "lake") for one in found):
        return 4
    return 0 if all(one.ok for one in found) else 1


app.command("takeover")(takeover)
app.command("publish")(publish)
app.command("import-mm2")(import_mm2)


@app.command()
def demo(
    conf: Conf = Path("conf/demo.yml"),
    records: Annotated[int, typer.Option("--records", min=100, help="Records per region.")] = 20_000,
    as_json: Json = False,
) -> int:
    """Start three clusters, mirror two regions into a centre, and show what happened."""
    from mirrorlake.cli.demo.demo import run_demo

    return run_demo(conf, records=records, output=Output(as_json=as_json))


app.command("offsets")(offsets)
app.command("groups")(groups)
app.command("history")(history)
app.command("quarantine")(quarantine)
app.command("pause")(pause)
app.command("resume")(resume)
app.command("rules")(rules)
app.command("conflicts")(conflicts)
app.command("rebuild")(rebuild)
app.command("repair")(repair)
app.command("records")(records)
app.command("passport")(passport)
app.command("report")(report)
app.command("sample")(sample)
app.command("lag")(lag)
app.command("runs")(runs)

StateDirectory = Annotated[Path, typer.Option("--state", help="Where brokers keep data, logs and pids.")]
_STATE = Path(".mirrorlake/sandbox")


@sandbox_app.command("up")
def sandbox_up(conf: Conf = DEFAULT_CONF, state: StateDirectory = _STATE, as_json: Json = False) -> int:
    """Start a broker for every cluster of the file; the brokers stay on until down."""
    from mirrorlake.config.load import load
    from mirrorlake.sandbox import Sandbox

    config = load(conf)
    rows = Sandbox(state).up(
        {alias: cluster.servers() for alias, cluster in config.clusters.items() if not cluster.is_lake}
    )
    return _show_sandbox(rows, as_json)


@sandbox_app.command("down")
def sandbox_down(
    conf: Conf = DEFAULT_CONF,  # noqa: ARG001  the same options on every sandbox command
    state: StateDirectory = _STATE,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the brokers' data, too.")] = False,
    as_json: Json = False,
) -> int:
    """Stop the brokers; their data is kept."""
    from mirrorlake.sandbox import Sandbox

    return _show_sandbox(Sandbox(state).down(purge=purge), as_json)


@sandbox_app.command("status")
def sandbox_status(
    conf: Conf = DEFAULT_CONF,  # noqa: ARG001  the same options on every sandbox command
    state: StateDirectory = _STATE,
    as_json: Json = False,
) -> int:
    """Show which brokers run."""
    from mirrorlake.sandbox import Sandbox

    return _show_sandbox(Sandbox(state).status(), as_json)


def _show_sandbox(rows: Sequence[Any], as_json: bool) -> int:
    output = Output(as_json=as_json)
    output.document({"clusters": [asdict(row) for row in rows]})
    output.table(
        "sandbox", ["cluster", "address", "pid", "state", "log"], [tuple(asdict(row).values()) for row in rows]
    )
    return 0
