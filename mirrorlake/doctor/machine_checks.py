"""Checks of this machine: Java, Spark and its jars, disks, memory, limits, folders, metrics port and MLflow store."""

from __future__ import annotations

import os
import re
import resource
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, warning
from mirrorlake.doctor.registry import check
from mirrorlake.errors import ConfigError, SandboxError
from mirrorlake.kafka import probe
from mirrorlake.render import format_count, format_size
from mirrorlake.runtime import cache_directory, find_java, inspect_jars
from mirrorlake.tracking import default_uri, lacking

_FIRST, _BEYOND = (4, 0), (4, 3)
# The jars' Delta and Kafka connector were built for this version.
_JARS_FOR = (4, 0)
_FULL, _NEARLY_FULL = 10**9, 5 * 10**9
_FEW_FILES = 10_000
# 2 GB of heap, its overhead, a Python worker a core and this process.
_MIN_MEMORY = 3 * 10**9
_MIN_FILES = 1024
_LOOK_S = 2.0


@check("java", layer="machine", fix="pip install 'mirrorlake[sandbox]', or install a JDK 17 or 21 and set JAVA_HOME")
def _java(_: CheckContext) -> Iterator[CheckOutcome]:
    """A Java 17 or 21 is found for Spark: others do not start Spark 4.0, which says so in fifty lines."""
    if _is_platform():
        yield fine("Java", "the platform brings its own")
        return
    try:
        java = find_java()
    except SandboxError as error:
        yield failure("Java", error.cause, error.remedy)
        return
    yield fine("Java", f"Java {java.version} in {java.home}")


@check("spark.version", layer="machine", fix="pip install 'mirrorlake[spark]'")
def _spark_version(_: CheckContext) -> Iterator[CheckOutcome]:
    """PySpark is installed here in a version that streams run on (4.0 to 4.2), and fits the jars that a local Spark loads."""
    if _is_platform():
        yield fine("PySpark", f"the platform's, runtime {os.environ['DATABRICKS_RUNTIME_VERSION']}")
        return
    if find_spec("pyspark") is None:
        yield failure("PySpark", "it is not installed: no stream starts here", "pip install 'mirrorlake[spark]'")
        return
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        yield fine("PySpark", "it is there without a version of its own, as a cluster's")
        return
    parts = _numbers(found)
    if not _FIRST <= parts < _BEYOND:
        yield failure("PySpark", f"{found} is outside 4.0 to 4.2", "pip install 'mirrorlake[spark]'")
    elif parts != _JARS_FOR and not os.environ.get("SPARK_HOME"):
        yield warning(
            "PySpark",
            f"{found}, and a local session loads Delta and the Kafka connector for 4.0",
            "pip install 'pyspark==4.0.*', or give a session of your own with its own jars",
        )
    else:
        yield fine("PySpark", found)


@check("spark.jars", layer="machine", fix="delete the folder that is named: the next start downloads it again")
def _spark_jars(_: CheckContext) -> Iterator[CheckOutcome]:
    """The jars of Delta and the Kafka connector in the cache are whole, by their checked-in sums: a copy or a full disk cuts them."""
    if _is_platform():
        yield fine("jars", "the platform brings its own")
        return
    folder, problems = inspect_jars("spark")
    if problems:
        yield failure(
            "jars", f"{folder}: {', '.join(problems)}", f"rm -r {folder}; the next start downloads them again"
        )
    elif folder.is_dir():
        yield fine("jars", f"whole, in {folder}")
    else:
        yield fine("jars", "not downloaded yet: the first start does so, and needs a Maven repository")


@check("disk.free", layer="machine", fix="free space, or move lake.root, MIRRORLAKE_CACHE or SPARK_LOCAL_DIRS")
def _disk_free(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The disks of the lake, the cache and Spark's folders have room (1 GB, better 5) and inodes: a full one stops the streams."""
    seen = set()
    for what, folder in _folders(inputs):
        there = _existing(folder)
        if (device := there.stat().st_dev) in seen:
            continue
        seen.add(device)
        state = os.statvfs(there)
        free = state.f_bavail * state.f_frsize
        left = f"{format_size(free)} free on the disk of {folder}"
        if free < _FULL:
            yield failure(what, left, f"free space there, at least {format_size(_NEARLY_FULL)}")
        elif free < _NEARLY_FULL:
            yield warning(what, left, f"free space there, at least {format_size(_NEARLY_FULL)}")
        elif state.f_files and state.f_favail < _FEW_FILES:
            few = f"room for {format_count(state.f_favail)} files only on the disk of {folder}"
            yield warning(what, few, "delete small files there, or give it more inodes")
        else:
            yield fine(what, left)


@check("memory", layer="machine", finds="warning", fix="give the machine or the container 4 GB")
def _memory(_: CheckContext) -> Iterator[CheckOutcome]:
    """This machine, or the container's limit, has the 3 GB that a local Spark and its workers take: else the kernel kills one."""
    limits = [one for one in (_machine_memory(), _container_memory()) if one is not None]
    if not limits:
        yield fine("memory", "not told by this system")
    elif (least := min(limits)) < _MIN_MEMORY and not _is_platform():
        yield warning("memory", f"{format_size(least)} in all; a run takes 3 GB", "give it 4 GB or more")
    else:
        yield fine("memory", f"{format_size(least)} in all")


@check(
    "limits.open-files",
    layer="machine",
    finds="warning",
    fix="LimitNOFILE=65536 in the systemd unit, or ulimit -n 65536",
)
def _open_files(_: CheckContext) -> Iterator[CheckOutcome]:
    """The process may open 1 024 files or more: each broker costs a connection a client, each relay file and jar one while open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MIN_FILES:
        yield warning(
            "open files", f"at most {soft} (hard limit {hard})", "ulimit -n 65536; systemd: LimitNOFILE=65536"
        )
    else:
        yield fine("open files", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


@check("folders.writable", layer="machine", fix="chown -R USER FOLDER, for the user that the service runs as")
def _folders_writable(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """This user may write the lake's folders, the cache and Spark's: one run as root leaves folders that the service cannot write."""
    told = False
    for what, folder in _folders(inputs):
        for place in (folder, *_inside(what, folder)):
            there = _existing(place)
            if not there.is_dir():
                told = True
                yield failure(
                    what, f"{there} is a file, so {place} cannot be a folder", f"name another folder, or move {there}"
                )
            elif not os.access(there, os.W_OK | os.X_OK):
                told = True
                yield failure(
                    what, f"{there} may not be written by uid {os.getuid()}", f"chown -R {os.getuid()} {there}"
                )
    if not told:
        yield fine("folders", "lake, cache and Spark's folders may be written")


@check("metrics.port", layer="machine", finds="warning", fix="metrics.port: a free port")
def _metrics_port(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The port of /metrics answers while a mirror runs here, and is free or ours: a taken one is logged, and alerts go blind."""
    settings = inputs.config.metrics
    if settings.port is None:
        yield fine("metrics", "no port is set: nothing is served to Prometheus")
        return
    host = "127.0.0.1" if settings.address in ("0.0.0.0", "::") else settings.address  # noqa: S104  a comparison
    address = f"{f'[{host}]' if ':' in host else host}:{settings.port}"
    silent = probe({"metrics": address}, timeout_s=_LOOK_S)["metrics"][address]
    if silent and inputs.running():
        next_step = "read the log of run for metrics.not_served, then restart it"
        yield warning("metrics", f"{address} {silent}, though a mirror runs here", next_step)
    elif silent:
        yield fine("metrics", f"{address} is free; nothing runs here")
    elif _serves_ours(address):
        yield fine("metrics", f"{address} serves a mirror's figures")
    else:
        yield warning("metrics", f"something else listens at {address}", "set metrics.port to a free port")


@check(
    "tracking.store", layer="machine", finds="warning", fix="pip install 'mirrorlake[mlflow]', or correct tracking.uri"
)
def _tracking(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """The MLflow store of verifications and drills can be reached; a mirror runs without it, and keeps no record of its proofs."""
    settings = inputs.config.tracking
    if settings.enabled is False:
        yield fine("MLflow", "`tracking.enabled` is false")
        return
    try:
        uri = default_uri(inputs.config)
    except ConfigError:
        yield fine("MLflow", "settings.references says what is wrong with its address")
        return
    why = "the lake is not a folder of this machine, and `tracking.uri` is not set" if uri is None else lacking(uri)
    if uri is None or why is not None:
        if settings.enabled is True:
            yield warning("MLflow", str(why), "pip install 'mirrorlake[mlflow]', or set tracking.uri")
        else:
            yield fine("MLflow", f"off: {why}")
        return
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https") and parts.hostname:
        address = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        if silent := probe({"MLflow": address}, timeout_s=_LOOK_S)["MLflow"][address]:
            yield warning("MLflow", f"{address} {silent}", "start it, or correct tracking.uri")
            return
    yield fine("MLflow", f"runs go to {parts.scheme}")


def _is_platform() -> bool:
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _folders(inputs: CheckContext) -> Iterator[tuple[str, Path]]:
    lake, places = inputs.config.lake.folder(), inputs.config.lake.checkpoint_location()
    if lake is not None:
        yield "lake", lake
    if lake is not None and ":/" not in places:
        yield "checkpoint locations", Path(places)
    yield "cache", cache_directory()
    for folder in (os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(","):
        yield "Spark's local folders", Path(folder)


def _inside(what: str, folder: Path) -> Iterator[Path]:
    """Yield the log folders in a lake: a run by another user may leave them unwritable."""
    if what == "lake":
        with suppress(OSError):
            yield from folder.glob("*/*/_delta_log")


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            if place.exists():
                return place
    return Path(folder.anchor)


def _machine_memory() -> int | None:
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _container_memory() -> int | None:
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            return int(Path(file).read_text())
    return None


def _serves_ours(address: str) -> bool:
    with suppress(OSError, ValueError), urlopen(f"http://{address}/metrics", timeout=_LOOK_S) as answer:
        return b"mirrorlake_" in answer.read(1 << 16)
    return False
