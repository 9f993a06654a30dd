"""Track a verification as an MLflow run, and store its id in the table `audit`.

Parameters are names and choices of the settings. The settings themselves go in as their fingerprint, so that runs under the
same settings can be told apart from others, and no password is logged.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from mirrorlake.config import identity, plain
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.context import Context
from mirrorlake.lake import AUDIT
from mirrorlake.model.plan import Change
from mirrorlake.model.verify import COUNTS, PROBLEMS, VerifyReport
from mirrorlake.tracking import TrackedRun, log_run

log = logging.getLogger(__name__)

VERIFICATION = "verification"


def verification_run(
    report: VerifyReport, flow: FlowConfig, config: MirrorConfig, *, began_at: datetime, ended_at: datetime
) -> TrackedRun:
    """Build the tracked run of one flow's verification; `config` are the settings at that time."""
    seconds = (ended_at - began_at).total_seconds()
    sums = {name: sum(getattr(proof, name) for proof in report.partitions) for name in COUNTS}
    problems = Counter(difference.problem for difference in report.differences)
    figures = {
        "equal": float(report.equal),
        **sums,
        "offset_lag": sums["landed"] - sums["republished"] - sums["withheld"],
        "differences": len(report.differences),
        **{f"differences.{name}": problems[name] for name in PROBLEMS},
        "topics": len({proof.topic for proof in report.partitions}),
        "partitions": len(report.partitions),
        "seconds": seconds,
    }
    if seconds > 0:
        figures["records_per_second"] = sums["verified"] / seconds
    return TrackedRun(
        kind=VERIFICATION,
        flow=flow.name,
        result="equal" if report.equal else "different",
        began_at=began_at,
        ended_at=ended_at,
        parameters={
            "flow": flow.name,
            "source": flow.source,
            "target": flow.target,
            "delivery": flow.delivery,
            "lanes": flow.lanes,
            "rules": len(flow.rules),
            "settings": identity(plain(config)),
            "mirrorlake": _version("mirrorlake"),
            "spark": _version("pyspark"),
        },
        figures=figures,
        report=report,
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        # The package runs from a folder without installation, or the platform brings its own.
        return "unknown"


def track_verification(context: Context, run: TrackedRun) -> str | None:
    """Log a verification's run, write its id to `audit`, and return it; None if it was not logged.

    Raises nothing: neither the tracking store nor the audit row may change what a verification says.
    """
    run_id = log_run(context.config, run)
    if run_id is not None:
        after = {"equal": bool(run.figures["equal"]), "differences": run.figures["differences"], "run_id": run_id}
        change = Change(where="lake", kind=VERIFICATION, name=run.flow, action="logged", after=after, flow=run.flow)
        try:
            context.lake.create_side_table(AUDIT)
            context.audit().record([change], command="verify")
        except Exception as error:
            log.warning("tracking.not_in_audit run_id=%s why=%s: %s", run_id, type(error).__name__, str(error)[:200])
    return run_id
