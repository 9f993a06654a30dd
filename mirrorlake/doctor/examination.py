"""Run checks layer by layer, changing nothing: a check that fails reports why, and the others run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from mirrorlake.context import Context

# Importing a file registers its checks, in this order.
from mirrorlake.doctor import settings_checks, machine_checks, cluster_checks, lake_checks  # noqa: F401  isort: skip
from mirrorlake.doctor import topic_checks, flow_checks  # noqa: F401  isort: skip
from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, Finding, Findings, failure
from mirrorlake.doctor.registry import Check, list_checks
from mirrorlake.errors import ConfigError, MirrorlakeError

_LONGEST = 300


def examine(context: Context, *, only: Collection[str] = (), skip: Collection[str] = ()) -> Findings:
    """Examine settings, this machine, clusters, lake and flows; `kafka` in `only` or `skip` names all that begin with it."""
    inputs, found, said = CheckContext(context), Findings(), set[tuple[str, str]]()
    for one in list_checks(only=only, skip=skip):
        for subject, look in _looks(one, inputs):
            for seen in _guarded(look, subject):
                # A subject that one check cannot read fails the next checks alike: report it once.
                if seen.severity == "ok" or (seen.subject, seen.detail) not in said:
                    said.add((seen.subject, seen.detail))
                    found.append(_finding(one, seen))
    return found


def _looks(one: Check, inputs: CheckContext) -> Iterator[tuple[str, Callable[[], Iterable[CheckOutcome]]]]:
    """Yield each subject of a check with its call; omit silent clusters, which `kafka.reachable` reports."""
    config = inputs.config
    if one.per == "mirror":
        yield one.name, partial(one.run, inputs)
    elif one.per == "flow":
        for flow in config.flows:
            if inputs.answers(flow.source) and inputs.answers(flow.target):
                yield flow.name, partial(one.run, inputs.flow(flow))
    else:
        for alias in inputs.clusters if one.per == "cluster" else config.sources:
            here = (
                not inputs.is_lake(alias) and inputs.answers(alias)
                if one.per == "cluster"
                else _has_relay(inputs, alias)
            )
            if here:
                yield alias, partial(one.run, inputs, alias)


def _has_relay(inputs: CheckContext, alias: str) -> bool:
    try:
        return inputs.has_relay(alias)
    except Exception:
        # `lake.tables` reports the reason.
        return False


def _guarded(look: Callable[[], Iterable[CheckOutcome]], subject: str) -> list[CheckOutcome]:
    """Return a check's outcomes; an exception becomes a failure."""
    try:
        return list(look())
    except ConfigError as error:
        return [failure(fault.path, fault.problem, fault.remedy) for fault in error.faults]
    except MirrorlakeError as error:
        return [failure(subject, error.cause, error.remedy)]
    except Exception as error:
        lines = str(error).strip().splitlines()
        detail = lines[0][:_LONGEST] if lines else type(error).__name__
        return [
            failure(subject, f"it cannot be looked at: {detail}", "MIRRORLAKE_DEBUG=1 in the environment shows where")
        ]


def _finding(one: Check, seen: CheckOutcome) -> Finding:
    return Finding(
        check=one.name, layer=one.layer, subject=seen.subject, severity=seen.severity, detail=seen.detail, fix=seen.fix
    )
