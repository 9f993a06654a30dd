"""Checks of this machine: Java, Spark and its jars, disks and folders."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from mirrorlake.doctor.check_context import CheckContext
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, warning
from mirrorlake.doctor.registry import check
from mirrorlake.errors import SandboxError
from mirrorlake.render import format_count, format_size
from mirrorlake.runtime import cache_directory, existing_folder, find_java, inspect_jars, named_cache

_FIRST, _BEYOND = (4, 0), (4, 3)
# The jars' Delta and Kafka connector were built for this version.
_JARS_FOR = (4, 0)
_FULL, _NEARLY_FULL = 10**9, 5 * 10**9
_FEW_FILES = 10_000


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
        there = existing_folder(folder)
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


@check("folders.writable", layer="machine", fix="chown -R USER FOLDER, for the user that the service runs as")
def _folders_writable(inputs: CheckContext) -> Iterator[CheckOutcome]:
    """This user may write the lake's folders, the cache and Spark's: one run as root leaves folders that the service cannot write."""
    told = False
    for what, folder in _folders(inputs):
        for place in (folder, *_inside(what, folder)):
            there = existing_folder(place)
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
    if (named := named_cache()) != cache_directory():
        told = True
        yield warning(
            "cache",
            f"{named or 'a home'} may not be written by uid {os.getuid()}; {cache_directory()} is used, and may not last",
            "set MIRRORLAKE_CACHE to a folder that this user may write",
        )
    if not told:
        yield fine("folders", "lake, cache and Spark's folders may be written")


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
