"""Class data archives: a JVM maps them instead of loading, parsing and verifying ten thousand classes at each start.

An archive is made once for a Java and its jars, from a list of classes in this package, and is cached (240 MB for Spark). Java
compares it with its class path, and starts without it if they differ.

The lists are the output of `-XX:DumpLoadedClassList=FILE`, without comments and columns, in `SPARK_SUBMIT_OPTS` of a
`mirrorlake run --once` with records to mirror, of the tests of typed tables, of lag, publishing and streaming queries, and in the
options of a broker with a transactional producer and a group.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import logging
import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from mirrorlake.runtime.cache import cache_directory, named_cache, write_atomically
from mirrorlake.runtime.java import Java

log = logging.getLogger(__name__)

# The archives of older jars, or of another Java, that one machine may use in turn.
_KEPT = 3
# Low, because the user's own work runs at the first start of a JVM.
_NICENESS = 19
# Java would log to standard output, which has a command's answer.
_QUIET = "-Xlog:disable"


def class_data(name: str, java: Java, jars: Iterable[Path], command: Callable[[Sequence[str]], list[str]]) -> list[str]:
    """Return the Java options that use an archive, or [] until it exists; the first call starts making it in the background.

    If it cannot be made, the JVM starts without it. `command` builds the command that starts the Java, with further Java options.
    """
    try:
        archive = _folder() / f"{name}-{_key(name, java, jars)}.jsa"
        if archive.exists():
            os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}", _QUIET]
        _make(name, archive, command)
    except OSError as error:
        log.info("class_data.none name=%s why=%s", name, error)
    return []


def _folder() -> Path:
    # Not among temporary files: a container would make 240 MB at each start.
    return (named_cache() or cache_directory()) / "class-data"


def _key(name: str, java: Java, jars: Iterable[Path]) -> str:
    seen = hashlib.sha256(_classes(name).read_bytes())
    for path in (java.home / "lib" / "modules", *sorted(jars)):
        stat = path.stat()
        seen.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:16]


def _classes(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.classes.gz")


def _make(name: str, archive: Path, command: Callable[[Sequence[str]], list[str]]) -> None:
    part, said = archive.with_suffix(".part"), archive.with_suffix(".log")
    if said.exists() and not part.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        listed = archive.with_suffix(".classes")
        write_atomically(listed, gzip.decompress(_classes(name).read_bytes()))
        options = ["-Xshare:dump", f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={part}"]
        done = f"mv {shlex.quote(str(part))} {shlex.quote(str(archive))} && rm -f {shlex.quote(str(said))}"
        # The process outlives a short command, so it cleans up itself; after a failure its log file remains, and marks the failure.
        script = f'nice -n {_NICENESS} "$@" && {done}; rm -f "$0" {shlex.quote(str(listed))}'
        with said.open("wb") as output:
            part.touch()
            subprocess.Popen(
                ["/bin/sh", "-c", script, str(part), *command(options)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(lock.fileno(),),
            )
    _clear(archive.parent, name)


def _clear(folder: Path, name: str) -> None:
    archives = sorted(folder.glob(f"{name}-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[_KEPT:]:
        with suppress(FileNotFoundError):
            old.unlink()
