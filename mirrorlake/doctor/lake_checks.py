"""Checks of the lake: that it works, that its tables are unchanged, and that maintenance is not behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, some, warning
from mirrorlake.doctor.registry import check
from mirrorlake.lag import other_flows
from mirrorlake.lake import (
    RELAY,
    SIDE_TABLES,
    FencedRelayWriter,
    broken_checkpoints,
    broken_commits,
    broken_files,
    broken_rows,
    check_store,
    land_checkpoint_path,
    landing_interval_s,
    landing_requests,
    poll_interval_s,
    read_checkpoint_location,
    sampling_requests,
    sending_requests,
)
from mirrorlake.render import format_count, format_duration, format_size, plural

_MANY_FILES, _SMALL = 5_000, 10**6
_MANY_COMMITS = 2_000
# Platforms may switch these on; not `delta.appendOnly`, which retention and erasure switch off.
_KEPT = (
    "delta.enableDeletionVectors",
    "delta.autoOptimize.optimizeWrite",
    "delta.autoOptimize.autoCompact",
)
_NEVER = {
    "delta.setTransactionRetentionDuration": "it forgets which batches were written, and a batch may be landed twice",
    "delta.columnMapping.mode": "workers read the relay's files by the names of its columns",
}
_OFF = {"", "none"}


@check("lake.store", layer="lake", fix="the finding names what the store must allow; docs/object-stores.md")
def _store(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """An object store takes a file, lists it, tells two writers apart (law F), and deletes; nothing of the trial stays."""
    store = inputs.lake.store
    if store is None:
        yield fine("lake", "not on an object store with settings")
        return
    for look in check_store(store):
        if look.problem:
            yield failure(look.what, look.problem, look.fix)
        else:
            yield fine(look.what, f"works below {store.root}")


@check("lake.requests", layer="lake", fix="trigger: 5s under land and in flows makes them fewer; docs/object-stores.md")
def _requests(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """How many requests an always-on mirror makes to an object store, at the paces of its settings, with one task a flow."""
    config, store = inputs.config, inputs.lake.store
    if store is None:
        yield fine("lake", "not on an object store with settings")
        return
    paces = {
        alias: landing_interval_s(store.root, config.cluster(alias).land.trigger)
        for alias in config.sources
        if not inputs.is_lake(alias)
    }
    said = []
    for busy in (False, True):
        made = sampling_requests(config.sampling.every.total_seconds())
        for pace_s in paces.values():
            made += landing_requests(pace_s, busy=busy)
        for flow in config.flows:
            look_s = poll_interval_s(store.root, flow.trigger)
            made += sending_requests(look_s, paces.get(flow.source, look_s), busy=busy)
        when = "while records come all the time" if busy else "while none come"
        said.append(
            f"about {format_count(made.count)} requests an hour {when} ({made.usd:.2f} USD at Amazon's list price)"
        )
    yield fine("lake", "; ".join(said))


@check("lake.tables", layer="lake", fix="check lake.root and its permissions; mirrorlake apply creates tables")
def _tables(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The lake's tables can be read, and none was removed by hand; those that were never made come with the first run."""
    missing = inputs.missing()
    for name in inputs.lake.removed_tables(missing.values()):
        said = "was removed by hand: what it held is not known any more, and it is read as empty"
        yield failure(
            name, said, f"restore {name} from a copy, with every job stopped; else mirrorlake apply goes on without"
        )
    found = f"{plural(len(missing), 'table')} to create with the first run" if missing else "all tables exist"
    yield fine("tables", found)


@check("lake.properties", layer="lake", per="relay", fix="ALTER TABLE … SET TBLPROPERTIES as docs/tables.md has them")
def _properties(inputs: CheckContext, alias: str) -> Iterator[CheckOutcome]:
    """Nobody changed the properties of a relay: automatic rewriting, deletion vectors and forgotten transactions cost exactness."""
    held = inputs.relay_properties(alias)
    wanted = {name: RELAY.properties[name] for name in _KEPT}
    changed = [f"{name}={held[name]}" for name in wanted if held.get(name, wanted[name]).lower() != wanted[name]]
    if changed:
        told = ", ".join(f"'{name.partition('=')[0]}' = '{wanted[name.partition('=')[0]]}'" for name in changed)
        yield failure(alias, f"its relay has {some(changed)}", f"ALTER TABLE … SET TBLPROPERTIES ({told})")
    harmful = {name: why for name, why in _NEVER.items() if held.get(name, "").lower() not in _OFF}
    for name, why in harmful.items():
        yield failure(alias, f"its relay has {name}: {why}", f"ALTER TABLE … UNSET TBLPROPERTIES ('{name}')")
    if not changed and not harmful:
        yield fine(alias, "its relay is as it was made")


def _maintained_until(inputs: CheckContext) -> datetime | None:
    """Return the time before which maintenance had a chance to meet every file, or None if a running mirror does none."""
    every = inputs.config.maintenance.every
    # A pass leaves out files younger than two minutes, and takes a while itself.
    return inputs.now - 2 * every - timedelta(minutes=2) if every else None


@check(
    "lake.relay-files",
    layer="lake",
    per="relay",
    finds="warning",
    fix="mirrorlake maintain; maintenance.every while running",
)
def _relay_files(inputs: CheckContext, alias: str) -> Iterator[CheckOutcome]:
    """A relay does not fall apart into small files (5 000 below 1 MB on average): questions and restarts get slow.

    Files that maintenance has not met yet do not count.
    """
    files, held = inputs.lake.size(inputs.lake.relay_location(alias), written_before=_maintained_until(inputs))
    said = f"{plural(files, 'file')}, {format_size(held)}"
    if files >= _MANY_FILES and held / files < _SMALL:
        yield warning(
            alias,
            f"its relay has {said}: {format_size(held // files)} each",
            "mirrorlake maintain; set maintenance.every",
        )
    else:
        yield fine(alias, said)


@check("lake.whole", layer="lake", fix="mirrorlake repair --source A; mirrorlake land --source A --once")
def _whole(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The logs and files of all tables are whole: a power cut, or a disk, may leave them empty or cut (law C)."""
    root = inputs.config.lake.folder()
    if root is None:
        yield fine("tables", "not looked at: the lake is not a folder of this machine")
        return
    relays = {alias: inputs.lake.relay_location(alias) for alias in inputs.config.sources}
    others = {table.name: inputs.lake.meta_location(table) for table in SIDE_TABLES}
    broken = False
    for name, location in {**{f"relay of {alias}": place for alias, place in relays.items()}, **others}.items():
        log = Path(location, "_delta_log")
        # Records lost with an earlier commit were landed again before the next commit.
        newest = max(log.glob("*.json"), default=None)
        commits = broken_commits([newest] if newest else [])
        found = [(one, "the next start of landing lands again what it held") for one in commits]
        found += [(one, "it is passed over and made again") for one in broken_checkpoints(log)]
        for (file, why), then in found:
            broken = True
            yield warning(name, f"its log has {why}: {file.name}; {then}", "mirrorlake run, then mirrorlake verify")
    for alias, location in relays.items():
        held = inputs.lake.open_maintenance(location)
        if held is not None and (files := list(broken_files(held))):
            broken = True
            lost = sum(one.records for one in files)
            said = f"{plural(len(files), 'record file')} of its relay with {plural(lost, 'record')} cannot be read"
            yield failure(alias, said, f"mirrorlake repair --source {alias}")
    for name, location in others.items():
        table = inputs.lake.open_maintenance(location)
        if table is not None and (rows := broken_rows(table)):
            broken = True
            lost = sum(count for _, count in rows)
            said = f"{plural(len(rows), 'file')} of it with {plural(lost, 'row')} cannot be read"
            yield failure(name, said, f"mirrorlake repair --source {next(iter(relays), 'A')} says what is made again")
    if not broken:
        yield fine("tables", "logs and record files are whole")


@check("lake.log-files", layer="lake", finds="warning", fix="mirrorlake maintain, which writes log checkpoints")
def _log_files(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """No table's log holds thousands of commits after its last log checkpoint: each reader would read them one by one."""
    root = inputs.config.lake.folder()
    if root is None:
        yield fine("tables", "not looked at: the lake is not a folder of this machine")
        return
    relays = {f"relay of {alias}": inputs.lake.relay_location(alias) for alias in inputs.config.sources}
    others = {table.name: inputs.lake.meta_location(table) for table in SIDE_TABLES}
    worst, until = 0, _maintained_until(inputs)
    for name, location in {**relays, **others}.items():
        logs = Path(location, "_delta_log")
        last = max((int(one.name.split(".")[0]) for one in logs.glob("*.checkpoint*.parquet")), default=-1)
        after = sorted(one for one in logs.glob("*.json") if one.stem.isdigit() and int(one.stem) > last)
        worst = max(worst, len(after))
        is_missed = until is None or all(one.stat().st_mtime < until.timestamp() for one in after[_MANY_COMMITS:][:1])
        if len(after) > _MANY_COMMITS and is_missed:
            said = f"{format_count(len(after))} commits after its last log checkpoint"
            yield warning(name, said, "mirrorlake maintain; set maintenance.every")
    yield fine("tables", f"at most {plural(worst, 'commit')} after a log checkpoint")


@check(
    "lake.samples",
    layer="lake",
    finds="warning",
    fix="mirrorlake run, or mirrorlake sample where runs are jobs; read its log",
)
def _samples(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """While a mirror runs, positions were looked at lately: without, verdicts, RPO and alerts speak of the past."""
    every = inputs.config.sampling.every
    if not every:
        yield fine("samples", "`sampling.every` is 0s")
        return
    rows = inputs.lake.query_rows(
        "SELECT max(observed_at) AS newest FROM {samples} WHERE error IS NULL", missing_ok=True
    )
    newest = next((row.newest for row in rows), None)
    if newest is None:
        yield fine("samples", "none was taken yet")
        return
    age = inputs.now - (newest if newest.tzinfo else newest.replace(tzinfo=inputs.now.tzinfo))
    said = f"the newest is {format_duration(age)} old"
    if age < timedelta(minutes=-1):
        yield warning(
            "samples", "the newest comes from the future", "set the clock of this machine, or of the one that runs"
        )
    elif inputs.running() and age > max(10 * every, timedelta(minutes=5)):
        yield warning("samples", f"{said}, though the mirror runs here", "read the log of run for why looks fail")
    else:
        yield fine("samples", said)


@check(
    "lake.other-flows",
    layer="lake",
    finds="warning",
    fix="run the other settings file, or mirrorlake retire --flow F for a flow that is gone for good",
)
def _other_flows(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """No flow of another settings file, and none that was renamed or removed, holds records back that nobody sends (law E)."""
    found = other_flows(inputs.config, inputs.control(), lake=inputs.lake, now=inputs.now)
    for one in found:
        worked = f", last worked {format_duration(inputs.now - one.worked_at)} ago" if one.worked_at else ""
        said = f"{one.state}{worked}: {format_count(one.waiting)} offsets landed and not sent to {one.target}"
        if one.holds_back:
            why = f" ({one.reason})" if one.reason else ""
            fix = f"run its settings file; if it is gone for good: mirrorlake retire --flow '{one.flow}'"
            yield warning(one.flow, f"{said}; they stay in the relay of {one.source}{why}", fix)
        else:
            yield fine(one.flow, said)
    if not found:
        yield fine("flows", "all that the lake knows are in this settings file")


@check("lake.checkpoint-location", layer="lake", per="relay", fix="mirrorlake land --source A --rebuild-checkpoint")
def _checkpoint_location(inputs: CheckContext, alias: str) -> Iterator[CheckOutcome]:
    """A landing query's checkpoint location knows the batches that the relay holds: else Spark starts at 0, and Delta drops records."""
    if inputs.is_lake(alias):
        yield fine(alias, "published into, not landed")
        return
    writer = FencedRelayWriter(inputs.lake, alias)
    writer.refresh()
    signed = writer.history.last_batch
    if writer.history.read_to is not None:
        yield fine(alias, f"number {writer.number}, progress in the relay's commits")
        return
    known = read_checkpoint_location(inputs.lake, land_checkpoint_path(inputs.lake, alias, writer.number))
    if signed is not None and signed.checkpoint == writer.number and signed.batch > known.last_planned:
        fix = f"mirrorlake land --source {alias} --rebuild-checkpoint (loses and repeats nothing)"
        yield failure(alias, f"{known.path} {known.ending}, and the relay holds batch {signed.batch}", fix)
    else:
        yield fine(alias, f"number {writer.number}, batch {known.last_planned}")
