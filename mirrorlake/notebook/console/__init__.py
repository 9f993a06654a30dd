"""The console: set up, watch and browse a mirror from a notebook, in core ipywidgets and our own table.

    ml.console()          # set a mirror up
    ml.console(mirror)    # watch it, explore its groups, browse its records, add a flow

The views share `session`; `feed` polls, `task_runner` runs work off the kernel's thread, `error_panel` shows failures, and the
views (`clusters`, `flow`, `review`, `run` in the `wizard`; `status`, `groups`, `records`, `recovery`) only show. A button makes a
public call that works without a browser:

| button | call |
|---|---|
| Test | `doctor.trial.try_cluster(config, alias)` |
| Read the source | `Mirror.preview(flow)`, `config.edit.flow_preview.preview(flow, topics)` |
| Add or change (flow) | `config.edit.Draft.with_flow(fields, of=name)` |
| Remove, Put back | `config.edit.Draft.without_flows(names)`, `config.edit.stays_after(flow)` |
| Review | `config.edit.Draft.config()`, `Mirror.plan(flow)` |
| Save the settings | `config.edit.saving.save(text, path, read=read)`, `difference(read, there)` |
| Apply | `Mirror.apply(flow, plan=plan)` |
| Run, Run once, Stop | `Mirror.running(flow)`, `Mirror.run(flow, once=once, stop=stop)`, `stop.set()` |
| Pause, Resume | `Mirror.pause(flow=flow)`, `Mirror.resume(flow=flow)` |
| Read the topics | `Mirror.topics(cluster)` |
| Open the chosen topic | `Mirror.topic(cluster, topic)` |
| Refresh | `Mirror.status()` |
| Read the samples | `lag.series.lag_lines(mirror.lag)` |
| Read the groups | `Mirror.group_standing(flow)` |
| Plan for the chosen | `Mirror.plan_groups(flow, groups=[…])` |
| Move the groups | `Mirror.apply_groups(flow, plan=plan)` |
| Read records, Older, Newer, Go on looking | `Mirror.browse(cluster, topic, partition, key=…, contains=…, where=…)` |
| Live tail | `Mirror.tail(cluster, topic, partition)` |
| Read (Recovery) | `FlowHandle.status()`, `FlowHandle.drills()` |
| Run a drill | `FlowHandle.drill()` |
| Go on with the cutover | `FlowHandle.cutover()` |
| a record | `Mirror.passport(cluster, topic, partition, offset)` |

Every control has its class, for styles and for tests in a browser:

- the whole: `ml-console`, `ml-tabs` (Set up, Topics, Status, Groups, Records, Recovery), `ml-errors` (hidden without any),
  `ml-errors-clear`; `ml-kernel` says whether the kernel answers, `ml-pulse` is everything that says how fresh an answer is
- wizard: `ml-wizard`, `ml-steps` (1 Clusters, 2 Flow, 3 Review and apply, 4 Run)
- clusters: `ml-cluster-list` of `ml-cluster-row` with `ml-cluster-edit`, `ml-cluster-copy`, `ml-cluster-remove`;
  `ml-cluster-new`, `ml-cluster-form`, `ml-cluster-alias`, `ml-cluster-taken`, `ml-cluster-servers`, `ml-cluster-security`,
  `ml-cluster-ca`, `ml-cluster-mechanism`, `ml-cluster-username`, `ml-cluster-reference`, `ml-cluster-password` (reports when it
  is left, and is emptied at once), `ml-cluster-password-kept`, `ml-cluster-never-leave`, `ml-cluster-test`, `ml-cluster-add`,
  `ml-cluster-result`
- flow: `ml-flow-list` of `ml-flow-row` with `ml-flow-edit`, `ml-flow-copy`, `ml-flow-remove`, `ml-flow-put-back`;
  `ml-flow-said`, `ml-flow-new`, `ml-flow-form`, `ml-flow-keep`, `ml-flow-discard`, `ml-flow-source`, `ml-flow-target`,
  `ml-flow-name`, `ml-flow-taken`, `ml-flow-use-free`, `ml-flow-topics`, `ml-flow-exclude`, `ml-flow-look`, `ml-flow-preview`,
  `ml-flow-policy`, `ml-flow-separator`, `ml-flow-template`, `ml-rule-keep`, `ml-rule-drop`, `ml-rule-mask`, `ml-rule-remove`,
  `ml-flow-groups`, `ml-flow-exclude-groups`, `ml-flow-sync-groups`, `ml-flow-sync-configs`, `ml-flow-sync-acls`,
  `ml-groups-preview`
- review: `ml-save-path`, `ml-lake-root`, `ml-lake-where`, `ml-review`, `ml-review-progress`, `ml-yaml` (its text in
  `ml-yaml-text`), `ml-save`, `ml-save-replace`, `ml-saved`, `ml-save-difference`, `ml-save-read-again`, `ml-plan`,
  `ml-review-state`, `ml-confirm`, `ml-apply`, `ml-apply-progress`
- run: `ml-applied`, `ml-run-flow`, `ml-run`, `ml-run-once`, `ml-run-stop`, `ml-run-pause`, `ml-run-resume`, `ml-run-progress`,
  `ml-run-said`, `ml-run-elsewhere`, `ml-run-save`
- topics: `ml-topics-cluster`, `ml-topics-look`, `ml-topics-fresh`, `ml-topics-matching`, `ml-topics-internal`,
  `ml-topics-matches`, `ml-topics-rows` (the table), `ml-topics-use`, `ml-topics-open`, `ml-topics-page`
- status: `ml-status-fresh`, `ml-status-flows`, `ml-status-rows` (the table), `ml-status-refresh`, `ml-status-live`;
  `ml-lag-since`, `ml-lag-measure`, `ml-lag-refresh`, `ml-lag-fresh`, `ml-lag-note`, `ml-lag-chart`
- groups: `ml-groups-flow`, `ml-groups-look`, `ml-groups-rows` (a grid), `ml-groups-plan-chosen`, `ml-groups-plan`,
  `ml-groups-confirm`, `ml-groups-apply`, `ml-groups-applied`
- records: `ml-records-flow`, `ml-records-topic`, `ml-records-topics`, `ml-records-partition`, `ml-records-side`,
  `ml-records-seek`, `ml-records-offset`, `ml-records-time`, `ml-records-time-read`, `ml-records-count`, `ml-records-key`,
  `ml-records-contains`, `ml-records-where`, `ml-records-look`, `ml-records-older`, `ml-records-newer`, `ml-records-go-on`,
  `ml-records-tail`, `ml-records-tail-stop`, and per side `ml-records-source`, `ml-records-relay`, `ml-records-target` (grids,
  rows by `partition@offset`) with `-head` and `-notes`; `ml-record` with `ml-record-head`, `ml-record-format`,
  `ml-record-content`, `ml-record-whole`, `ml-record-link`; `ml-passport`
- recovery: `ml-recovery-flow`, `ml-recovery-look`, `ml-recovery-objectives`, `ml-recovery-drill`, `ml-recovery-progress`,
  `ml-recovery-drilled`, `ml-recovery-drills`, `ml-recovery-confirm`, `ml-recovery-cutover`, `ml-recovery-checklist`
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlake.mirror import Mirror
    from mirrorlake.notebook.console.window import Console

__all__ = ["console"]


def console(
    mirror: Mirror | None = None, *, spark: SparkSession | None = None, now: Callable[[], datetime] | None = None
) -> Console:
    """Open the console of a mirror, which a notebook shows as a widget; without a mirror, set one up.

    Args:
        mirror: from `ml.load` or `ml.from_settings`; None to start without one.
        spark: the session for a mirror set up in the console; None as for `ml.load`.
        now: the clock; None for the machine's.

    Raises:
        UsageError: ipywidgets is not installed.

    Example:
        >>> ml.console(ml.load("conf/demo.yml"))  # doctest: +SKIP
    """
    try:
        import ipywidgets  # first, for a clear error instead of a traceback
    except ImportError:
        raise UsageError(
            "the console needs ipywidgets, which is not installed",
            consequence="everything it does is available as methods and commands, too",
            remedy="pip install 'mirrorlake[notebook]'",
        ) from None
    from mirrorlake.mirror import utc_now
    from mirrorlake.notebook.console.window import Console

    return Console(mirror, spark=spark, now=now or utc_now)
