"""The console: set up, watch and browse a mirror from a notebook, in core ipywidgets and our own table.

    ml.console()          # set a mirror up
    ml.console(mirror)    # watch it, explore its groups, browse its records, add a flow

The views share `session`; `poller` polls, `task_runner` runs work off the kernel's thread, `error_panel` shows failures, `links`
name what can be opened, `navigation` gives a page of its own an address, and the views (`clusters`, `flow`, `review`, `run` in the
`wizard`; `status`, `events`, `groups`, `records`, `tables`, `recovery`) only show. A button makes a public call that works without a
browser:

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
| Refresh (Tables) | `Mirror.tables()` |
| a table | `Mirror.table(name)` |
| Read (Recovery) | `FlowHandle.status()`, `FlowHandle.drills()` |
| Run a drill | `FlowHandle.drill()` |
| Go on with the cutover | `FlowHandle.cutover()` |
| a record | `Mirror.passport(cluster, topic, partition, offset)` |

Every control has the class `ml-<name>`, for styles and for tests in a browser; the name is the first argument where it is made.
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
