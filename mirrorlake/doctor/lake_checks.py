"""Checks of the lake: that it works, that its tables are unchanged, and that its files are whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, some, warning
from mirrorlake.doctor.registry import check
from mirrorlake.lake import (
    RELAY,
    SIDE_TABLES,
    broken_checkpoints,
    broken_commits,
    broken_files,
    broken_rows,
    check_store,
)
from mirrorlake.render import plural

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


@check("lake.tables", layer="lake", fix="check lake.root and its permissions; mirrorlake apply creates tables")
def _tables(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The lake is of this release, and its tables can be read; those that were never made come with the first run."""
    missing = inputs.lake.missing(inputs.config.sources)
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
