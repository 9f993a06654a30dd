"""Checks of settings, of this machine, and of the lake."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from mirrorlake.doctor.examination import Problem, check, problems_of, some
from mirrorlake.doctor.inputs import Inputs
from mirrorlake.errors import ConfigError
from mirrorlake.kafka import librdkafka_options
from mirrorlake.lake import RELAY, SIDE_TABLES, broken_checkpoints, broken_commits, broken_rows, check_store
from mirrorlake.render import format_count, format_size, plural
from mirrorlake.runtime import cache_directory, existing_folder, find_java, inspect_jars, named_cache

# -- settings --------------------------------------------------------------------------------------------------------


@check("settings.file", layer="settings", finds="ok", fix="--conf names another file")
def _file(inputs: Inputs) -> Iterator[Problem]:
    """Which settings file is meant, how many flows it has, and where its lake is: the wrong file looks healthy, too."""
    config = inputs.config
    file = "given as values" if config.path is None else str(config.path.absolute())
    place = config.lake.location() or ".".join(config.lake.namespace() or ())
    yield Problem(f"{plural(len(config.flows), 'flow')}, lake {place}", subject=file)


@check(
    "settings.references", layer="settings", per="cluster", fix="set the variable, or create the secret, that it names"
)
def _references(inputs: Inputs, alias: str) -> Iterator[Problem]:
    """Every `${env:…}` and `${secret:…}` of clusters and tracking resolves for this user, and every PEM file is readable.

    A service has another environment than the shell in which the settings were tried.
    """
    try:
        inputs.config.tracking.tracking_uri()
    except ConfigError as error:
        yield from problems_of(error, severity="warning")
    cluster = inputs.config.cluster(alias)
    if not cluster.is_lake:
        librdkafka_options(cluster, role="admin")


# -- this machine ----------------------------------------------------------------------------------------------------

_FIRST, _BEYOND = (4, 0), (4, 3)
# The jars' Delta and Kafka connector were built for this version.
_JARS_FOR = (4, 0)
_FULL, _NEARLY_FULL = 10**9, 5 * 10**9
_FEW_FILES = 10_000
_INSTALL_SPARK = "pip install 'mirrorlake[spark]'"


def _is_platform() -> bool:
    """Return whether a platform brings Java, Spark and its jars."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


@check("java", layer="machine", fix="pip install 'mirrorlake[sandbox]', or install a JDK 17 or 21 and set JAVA_HOME")
def _java(_: Inputs) -> None:
    """A Java 17 or 21 is found for Spark: others do not start Spark 4.0, which says so in fifty lines."""
    if not _is_platform():
        find_java()


@check("spark.version", layer="machine", fix=_INSTALL_SPARK)
def _spark_version(_: Inputs) -> Iterator[Problem]:
    """PySpark is installed here in a version that streams run on (4.0 to 4.2), and fits the jars that a local Spark loads."""
    if _is_platform():
        return
    if find_spec("pyspark") is None:
        yield Problem("PySpark is not installed: no stream starts here")
        return
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        # That of a cluster has no version of its own.
        return
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if not _FIRST <= numbers < _BEYOND:
        yield Problem(f"PySpark {found} is outside 4.0 to 4.2")
    elif numbers != _JARS_FOR and not os.environ.get("SPARK_HOME"):
        detail = f"PySpark is {found}, and a local session loads Delta and the Kafka connector for 4.0"
        fix = "pip install 'pyspark==4.0.*', or give a session of your own with its own jars"
        yield Problem(detail, fix, severity="warning")


@check("spark.jars", layer="machine", fix="delete the folder that is named: the next start downloads it again")
def _spark_jars(_: Inputs) -> Iterator[Problem]:
    """The jars of Delta and the Kafka connector in the cache are whole, by their checked-in sums: a copy or a full disk cuts them."""
    if _is_platform():
        return
    folder, problems = inspect_jars("spark")
    if problems:
        yield Problem(f"{folder}: {', '.join(problems)}", f"rm -r {folder}; the next start downloads them again")


@check("disk.free", layer="machine", fix="free space, or move lake.root, MIRRORLAKE_CACHE or SPARK_LOCAL_DIRS")
def _disk_free(inputs: Inputs) -> Iterator[Problem]:
    """The disks of the lake, the cache and Spark's folders have room (1 GB, better 5) and inodes: a full one stops the streams."""
    disks: dict[int, tuple[str, Path]] = {}
    for what, folder in _folders(inputs):
        disks.setdefault(existing_folder(folder).stat().st_dev, (what, folder))
    for what, folder in disks.values():
        state = os.statvfs(existing_folder(folder))
        free = state.f_bavail * state.f_frsize
        if free < _NEARLY_FULL:
            left = f"{format_size(free)} free on the disk of {folder}"
            fix = f"free space there, at least {format_size(_NEARLY_FULL)}"
            yield Problem(left, fix, what, "failure" if free < _FULL else "warning")
        elif state.f_files and state.f_favail < _FEW_FILES:
            few = f"room for {format_count(state.f_favail)} files only on the disk of {folder}"
            yield Problem(few, "delete small files there, or give it more inodes", what, "warning")


@check("folders.writable", layer="machine", fix="chown -R USER FOLDER, for the user that the service runs as")
def _folders_writable(inputs: Inputs) -> Iterator[Problem]:
    """This user may write the lake's folders, the cache and Spark's: one run as root leaves folders that the service cannot write."""
    user, folders = os.getuid(), _folders(inputs)
    if lake := inputs.config.lake.folder():
        with suppress(OSError):
            folders += [("lake", log) for log in lake.glob("*/*/_delta_log")]
    for what, folder in folders:
        there = existing_folder(folder)
        if not there.is_dir():
            detail = f"{there} is a file, so {folder} cannot be a folder"
            yield Problem(detail, f"name another folder, or move {there}", what)
        elif not os.access(there, os.W_OK | os.X_OK):
            yield Problem(f"{there} may not be written by uid {user}", f"chown -R {user} {there}", what)
    if (named := named_cache()) != (used := cache_directory()):
        detail = f"{named or 'a home'} may not be written by uid {user}; {used} is used, and may not last"
        yield Problem(detail, "set MIRRORLAKE_CACHE to a folder that this user may write", "cache", "warning")


def _folders(inputs: Inputs) -> list[tuple[str, Path]]:
    lake, checkpoints = inputs.config.lake.folder(), inputs.config.lake.checkpoint_location()
    found = [("lake", lake)] if lake is not None else []
    if lake is not None and ":/" not in checkpoints:
        found.append(("checkpoint locations", Path(checkpoints)))
    local = (os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(",")
    return [*found, ("cache", cache_directory()), *(("Spark's local folders", Path(folder)) for folder in local)]


# -- the lake --------------------------------------------------------------------------------------------------------

# Platforms may switch these on; not `delta.appendOnly`, which retention and erasure switch off.
_KEPT = ("delta.enableDeletionVectors", "delta.autoOptimize.optimizeWrite", "delta.autoOptimize.autoCompact")
_NEVER = {
    "delta.setTransactionRetentionDuration": "it forgets which batches were written, and a batch may be landed twice",
    "delta.columnMapping.mode": "workers read the relay's files by the names of its columns",
}
_OFF = {"", "none"}


@check("lake.store", layer="lake", fix="the finding names what the store must allow; docs/object-stores.md")
def _store(inputs: Inputs) -> Iterator[Problem]:
    """An object store takes a file, lists it, tells two writers apart (law F), and deletes; nothing of the trial stays."""
    tried = check_store(inputs.lake.store) if inputs.lake.store is not None else ()
    yield from (Problem(one.problem, one.fix, one.what) for one in tried if one.problem)


@check("lake.tables", layer="lake", fix="check lake.root and its permissions; mirrorlake apply creates tables")
def _tables(inputs: Inputs) -> None:
    """The lake is of this release, and its tables can be read; those that were never made come with the first run."""
    inputs.lake.missing(inputs.config.sources)


@check("lake.properties", layer="lake", per="relay", fix="ALTER TABLE … SET TBLPROPERTIES as docs/tables.md has them")
def _properties(inputs: Inputs, alias: str) -> Iterator[Problem]:
    """Nobody changed the properties of a relay: automatic rewriting, deletion vectors and forgotten transactions cost exactness."""
    held = inputs.lake.properties(inputs.lake.relay_location(alias))
    wanted = {name: RELAY.properties[name] for name in _KEPT}
    if changed := [name for name, kept in wanted.items() if held.get(name, kept).lower() != kept]:
        told = ", ".join(f"'{name}' = '{wanted[name]}'" for name in changed)
        detail = f"its relay has {some(f'{name}={held[name]}' for name in changed)}"
        yield Problem(detail, f"ALTER TABLE … SET TBLPROPERTIES ({told})")
    for name, why in _NEVER.items():
        if held.get(name, "").lower() not in _OFF:
            yield Problem(f"its relay has {name}: {why}", f"ALTER TABLE … UNSET TBLPROPERTIES ('{name}')")


@check("lake.whole", layer="lake", fix="mirrorlake repair --source A; mirrorlake land --source A --once")
def _whole(inputs: Inputs) -> Iterator[Problem]:
    """The logs and files of all tables are whole: a power cut, or a disk, may leave them empty or cut (law C)."""
    lake, sources = inputs.lake, inputs.config.sources
    if inputs.config.lake.folder() is None:
        yield Problem("not looked at: the lake is not a folder of this machine", severity="ok")
        return
    relays = {f"relay of {alias}": (lake.relay_location(alias), alias) for alias in sources}
    others = {table.name: (lake.meta_location(table), "") for table in SIDE_TABLES}
    for name, (location, relay) in (relays | others).items():
        log = Path(location, "_delta_log")
        # Records lost with an earlier commit were landed again before the next commit.
        newest = max(log.glob("*.json"), default=None)
        commits = broken_commits([newest] if newest else [])
        broken = [(one, "the next start of landing lands again what it held") for one in commits]
        broken += [(one, "it is passed over and made again") for one in broken_checkpoints(log)]
        for (file, why), then in broken:
            detail = f"its log has {why}: {file.name}; {then}"
            yield Problem(detail, "mirrorlake run, then mirrorlake verify", name, "warning")
        table = lake.open_maintenance(location)
        if table is not None and (lost := [rows for _, rows in broken_rows(table)]):
            detail = f"{plural(len(lost), 'file')} of it with {plural(sum(lost), 'row')} cannot be read"
            yield Problem(detail, f"mirrorlake repair --source {relay or next(iter(sources), 'A')}", name)
