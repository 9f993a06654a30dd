"""Resolve the sandbox's jars once with pyspark's Ivy, check them against checked-in sums, and cache them.

| set      | for                                                                       |
|----------|---------------------------------------------------------------------------|
| `broker` | a Kafka broker, its storage tool and its console clients                  |
| `mm2`    | MirrorMaker 2, for comparison                                             |
| `spark`  | Spark's Kafka connector and Delta, besides its own jars                   |
| `s3a`    | reading a lake on S3, besides those                                       |
| `registry` | a schema registry for the tests, as an archive with its own jars        |

A broker's jars and Spark's must never share a class path, because they include different Kafka clients.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

from rich.console import Console

from mirrorlake.errors import SandboxError, UsageError
from mirrorlake.runtime.cache import cache_directory, existing_folder, locked, named_cache
from mirrorlake.runtime.host import java_properties
from mirrorlake.runtime.java import find_java

_KAFKA = "org.apache.kafka"
_KAFKA_VERSION = "4.3.1"
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_ATTEMPTS = 3
_WITHOUT_POMS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_FOUND = re.compile(r"found ([^#]+)#([^;]+);(\S+) in .+")


@dataclass(frozen=True, slots=True)
class JarSet:
    """A set to resolve: Maven coordinates, and the dependencies to exclude (`organisation:module`).

    A file other than the module's jar has `:<classifier>@<extension>` after its coordinates; without `poms`, nothing but files
    is asked for.
    """

    coordinates: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    transitive: bool = True
    poms: bool = True


JAR_SETS: Mapping[str, JarSet] = {
    "broker": JarSet(
        (
            f"{_KAFKA}:kafka_2.13:{_KAFKA_VERSION}",
            f"{_KAFKA}:kafka-server:{_KAFKA_VERSION}",
            f"{_KAFKA}:kafka-tools:{_KAFKA_VERSION}",
            _LOGGING,
        ),
        # The tools depend on Kafka Connect and its web server, which only `connect-plugin-path` uses.
        excludes=(
            *(f"{_KAFKA}:connect-{part}" for part in ("api", "json", "runtime", "transforms")),
            "com.fasterxml.jackson.jakarta.rs:*",
            "com.fasterxml.jackson.module:*",
        ),
    ),
    "mm2": JarSet((f"{_KAFKA}:connect-mirror:{_KAFKA_VERSION}", _LOGGING)),
    # Not transitive: Spark already includes all other used parts of the hundred megabytes of dependencies.
    "spark": JarSet(
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            f"{_KAFKA}:kafka-clients:3.9.0",
            "org.apache.commons:commons-pool2:2.12.0",
            "io.delta:delta-spark_4.0_2.13:4.4.0",
            "io.delta:delta-storage:4.4.0",
        ),
        transitive=False,
    ),
    # For Spark SQL over a lake on S3. Only the used parts of Amazon's SDK: 13 MB, not the bundle's 600. From 2.30 on it sends
    # checksums that other servers do not support. The version of Hadoop is that of Spark's own Hadoop.
    "s3a": JarSet(
        (
            "org.apache.hadoop:hadoop-aws:3.4.1",
            *(f"software.amazon.awssdk:{part}:2.29.52" for part in ("s3", "s3-transfer-manager", "sts")),
        ),
        excludes=(
            "software.amazon.awssdk:bundle",
            "io.netty:*",
            "org.slf4j:*",
            "commons-codec:*",
            "commons-logging:*",
            "org.apache.httpcomponents:*",
        ),
    ),
    # A Java compiler for the tests, because the wheel's Java has none.
    "compiler": JarSet(("org.eclipse.jdt:ecj:3.33.0",), transitive=False),
    "registry": JarSet(("io.apicurio:apicurio-registry-app:3.0.9:all@tar.gz",), transitive=False, poms=False),
}


def jars(set_name: str) -> list[Path]:
    """Return the jars of a set, downloaded at the first call on this machine."""
    if set_name not in JAR_SETS:
        raise UsageError(f"no jar set is called {set_name!r}", remedy=f"use one of {', '.join(JAR_SETS)}")
    expected = expected_sums(set_name)
    directory = _directory(set_name, expected)
    found = [directory / name for name in sorted(expected)]
    if not _all_files(found):
        with locked(directory.parents[1] / f"{set_name}.lock"):
            if not _all_files(found):
                _install(set_name, expected, directory)
    return found


def inspect_jars(set_name: str) -> tuple[Path, list[str]]:
    """Return the directory of a set's jars, and their faults, or [] if they were not downloaded yet."""
    expected = expected_sums(set_name)
    directory = _directory(set_name, expected)
    if not directory.is_dir():
        return directory, []
    actual = actual_sums(directory)
    return directory, [
        f"{name} {'is missing' if name not in actual else 'is not the one that was tested'}"
        for name in sorted(expected)
        if actual.get(name) != expected[name]
    ]


def classpath(set_name: str) -> str:
    return os.pathsep.join(map(str, jars(set_name)))


def _directory(set_name: str, expected: Mapping[str, str]) -> Path:
    # The name includes the sums, so that a release with other jars never uses the old ones.
    below = Path("jars", set_name, _digest(sum_lines(expected).encode())[:12])
    # An image may bring the jars in a cache that its containers cannot write.
    if (named := named_cache()) is not None and existing_folder(named / below) == named / below:
        return named / below
    return cache_directory() / below


def expected_sums(set_name: str) -> dict[str, str]:
    lines = Path(__file__).with_name(f"{set_name}.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if line)}


def actual_sums(directory: Path) -> dict[str, str]:
    return {path.name: _digest(path.read_bytes()) for path in sorted(directory.iterdir())}


def sum_lines(sums: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


def check_sums(set_name: str, *, expected: Mapping[str, str], actual: Mapping[str, str]) -> None:
    """Refuse jars that differ from the expected ones, and name every missing, additional and different one."""
    differences = {
        "missing": expected.keys() - actual.keys(),
        "not expected": actual.keys() - expected.keys(),
        "different": {name for name in expected.keys() & actual.keys() if expected[name] != actual[name]},
    }
    found = [f"{kind}: {', '.join(sorted(names))}" for kind, names in differences.items() if names]
    if found:
        raise SandboxError(
            f"the jars of {set_name!r} are not the ones this version was tested with ({'; '.join(found)})",
            consequence="they were not installed",
            remedy="run the same command again; if it fails again, a proxy or mirror of the Maven repository changes the files",
            jar_set=set_name,
        )


def resolve(set_name: str, directory: Path, *, say: Callable[[str], None]) -> None:
    """Resolve a set into `directory` with Ivy, without checking sums; `say` gets one line per resolved artifact."""
    root = cache_directory()
    module = directory.parent / f"{directory.name}.ivy.xml"
    module.write_text(ivy_module(set_name, JAR_SETS[set_name]))
    settings = os.environ.get("MIRRORLAKE_IVY_SETTINGS")
    if not settings and not JAR_SETS[set_name].poms:
        own = directory.parent / "ivysettings.xml"
        own.write_text(_WITHOUT_POMS)
        settings = str(own)
    command = [
        str(find_java().executable),
        *java_properties(),
        "-jar",
        str(_ivy()),
        *(["-settings", settings] if settings else []),
        *("-cache", str(root / "ivy"), "-ivy", str(module), "-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{directory}/{_PATTERN}"),
    ]
    for attempt in range(1, _ATTEMPTS + 1):
        code, output = _run(command, say)
        if code == 0:
            module.unlink()
            return
        say(f"attempt {attempt} of {_ATTEMPTS} failed")
    marks = ("ERROR", "not found", "Exception", "error at", "FAILED")
    complaints = [line.strip() for line in output if any(mark in line for mark in marks)][-8:]
    raise SandboxError(
        "\n".join([f"the jars of {set_name!r} could not be downloaded:", *dict.fromkeys(complaints)]),
        consequence="nothing was installed",
        remedy="check the connection to the Maven repository; MIRRORLAKE_IVY_SETTINGS can name an Ivy settings file "
        "that points to a mirror of it, JAVA_TOOL_OPTIONS can set a proxy",
        jar_set=set_name,
    )


def ivy_module(set_name: str, jar_set: JarSet) -> str:
    """Return the Ivy file of a set: one file for all coordinates, so that Ivy resolves version conflicts."""
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        f'  <info organisation="mirrorlake" module="{escape(set_name)}"/>',
        '  <configurations><conf name="default"/></configurations>',
        "  <dependencies>",
    ]
    transitive = str(jar_set.transitive).lower()
    for coordinate in jar_set.coordinates:
        organisation, name, version, *other = coordinate.split(":")
        dependency = (
            f'    <dependency org="{organisation}" name="{name}" rev="{version}" conf="default->default" '
            f'transitive="{transitive}"'
        )
        if not other:
            lines.append(f"{dependency}/>")
            continue
        classifier, extension = other[0].split("@")
        artifact = f'<artifact name="{name}" type="jar" ext="{extension}" m:classifier="{classifier}"/>'
        lines.append(f"{dependency}>{artifact}</dependency>")
    for exclude in jar_set.excludes:
        organisation, name = exclude.split(":")
        lines.append(f'    <exclude org="{organisation}" module="{name}"/>')
    return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])


def _all_files(paths: Iterable[Path]) -> bool:
    return all(path.is_file() for path in paths)


def _install(set_name: str, expected: Mapping[str, str], directory: Path) -> None:
    say = partial(Console(stderr=True, highlight=False).print, markup=False, soft_wrap=True)
    say(f"mirrorlake: downloading the {len(expected)} jars of {set_name!r}, once")
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        fresh = temporary / "jars"
        resolve(set_name, fresh, say=say)
        check_sums(set_name, expected=expected, actual=actual_sums(fresh))
        shutil.rmtree(directory, ignore_errors=True)
        fresh.replace(directory)
        megabytes = sum(path.stat().st_size for path in directory.iterdir()) / 1e6
        say(f"mirrorlake: {set_name!r} is complete, {megabytes:.0f} MB in {directory}")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _run(command: list[str], say: Callable[[str], None]) -> tuple[int, list[str]]:
    output = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        for line in ivy.stdout or ():
            output.append(line.rstrip())
            if (artifact := resolved_artifact(line)) is not None:
                say(f"  {artifact}")
    return ivy.returncode, output


def resolved_artifact(line: str) -> str | None:
    """Return the artifact that a line of Ivy's output reports as resolved, or None."""
    found = _FOUND.fullmatch(line.strip())
    return " ".join(found.groups()) if found else None


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted((Path(place) / "jars").glob("ivy-*.jar"), reverse=True):
            return jar
    raise SandboxError(
        "pyspark, whose Ivy downloads the sandbox's jars, is not installed or has none",
        consequence="the jars cannot be downloaded",
        remedy="pip install 'mirrorlake[spark]'",
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
