"""Track a verification as an MLflow run, and store its id in the table `audit`.

Parameters are names and choices of the settings. The settings themselves go in as their fingerprint, so that runs under the
same settings can be told apart from others, and no password is logged.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from mirrorlake.config import identity, plain
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.context import Context
from mirrorlake.lake import AUDIT
from mirrorlake.model.plan import Change
from mirrorlake.model.verify import COUNTS, PROBLEMS, VerifyReport
from mirrorlake.tracking import FLOW, TrackedRun, html_page, json_report

log = logging.getLogger(__name__)

VERIFICATION = "verification"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    found: VerifyReport
    began_at: datetime
    ended_at: datetime


def verification_run(timed: Timed, flow: FlowConfig, config: MirrorConfig) -> TrackedRun:
    """Build the tracked run of one flow's verification; `config` are the settings at that time."""
    found, seconds = timed.found, (timed.ended_at - timed.began_at).total_seconds()
    sums = {name: sum(getattr(proof, name) for proof in found.partitions) for name in COUNTS}
    problems = Counter(difference.problem for difference in found.differences)
    figures = {
        "equal": float(found.equal),
        **sums,
        "offset_lag": sums["landed"] - sums["republished"] - sums["withheld"],
        "differences": len(found.differences),
        **{f"differences.{name}": problems[name] for name in PROBLEMS},
        "topics": len({proof.topic for proof in found.partitions}),
        "partitions": len(found.partitions),
        "seconds": seconds,
    }
    if seconds > 0:
        figures["records_per_second"] = sums["verified"] / seconds
    parameters: dict[str, str | int | float | bool] = {
        "flow": flow.name,
        "source": flow.source,
        "target": flow.target,
        "delivery": flow.delivery,
        "lanes": flow.lanes,
        "rules": len(flow.rules),
        "settings": identity(plain(config)),
        "mirrorlake": _version("mirrorlake"),
        "spark": _version("pyspark"),
    }
    title = f"{flow.name}: {'equal' if found.equal else 'different'}"
    return TrackedRun(
        kind=VERIFICATION,
        name=f"verify {flow.name}",
        began_at=timed.began_at,
        ended_at=timed.ended_at,
        parameters=parameters,
        figures=figures,
        reports={
            "verification.json": json_report({**found.as_dict(), "parameters": parameters, "figures": figures}),
            "verification.html": html_page(title, found),
        },
        tags={FLOW: flow.name},
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # The package runs from a folder without installation, or the platform brings its own.
        return "unknown"


def track_verification(context: Context, timed: Timed, flow: FlowConfig) -> str | None:
    """Log a verification's run, write its id to `audit`, and return it; None if runs are not logged.

    Raises nothing: neither the tracking store nor the audit row may change what a verification says.
    """
    if not context.tracker.is_on:
        return None
    run_id = context.tracker.log(verification_run(timed, flow, context.config))
    if run_id is not None:
        after = {"equal": timed.found.equal, "differences": len(timed.found.differences), "run_id": run_id}
        change = Change(where="lake", kind=VERIFICATION, name=flow.name, action="logged", after=after, flow=flow.name)
        try:
            context.lake.create_side_table(AUDIT)
            context.audit().record([change], command="verify")
        except Exception as error:
            log.warning("tracking.not_in_audit run_id=%s why=%s: %s", run_id, type(error).__name__, str(error)[:200])
    return run_id
