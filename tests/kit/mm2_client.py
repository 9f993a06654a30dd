"""MirrorMaker 2 as its users know it: the Java client that reads its topics, and the bytes of its records."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from mirrorlake.runtime import find_java
from mirrorlake.runtime.jar_files import classpath, jars

_SOURCE = Path(__file__).with_name("ClientCheck.java")
# The names with which every call of the client begins.
DEFAULT = ""
IDENTITY = (
    "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy;source.cluster.alias=region"
)
UNDERSCORE = "replication.policy.separator=_"


def ask_java(address: str, folder: Path, questions: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Ask connect-mirror-client of a target, in one JVM: properties, call and arguments by question; return the answers."""
    java, libraries = str(find_java().executable), classpath("mm2")
    if not (folder / "ClientCheck.class").exists():
        (compiler,) = jars("compiler")
        options = ["-17", "-proc:none", "-encoding", "UTF-8", "-cp", libraries, "-d", str(folder)]
        subprocess.run([java, "-jar", str(compiler), *options, str(_SOURCE)], check=True, timeout=400)
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Dfile.encoding=UTF-8"]
    asked = "".join("\t".join(words) + "\n" for words in questions.values()).encode()
    command = [java, *quiet, "-cp", f"{folder}:{libraries}", "ClientCheck", address]
    done = subprocess.run(command, input=asked, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip(questions, done.stdout.decode().splitlines(), strict=True))


def formatted(topic: str, kind: str) -> tuple[str, ...]:
    """Return the question that has a topic's records read by Kafka's own formatter; the answer parts them by `|`."""
    return DEFAULT, "format", topic, f"org.apache.kafka.connect.mirror.formatters.{kind}Formatter"


def heartbeat(source: str, target: str, timestamp_ms: int) -> tuple[bytes, bytes]:
    """Return value and key of a heartbeat, as MirrorMaker writes it."""
    key = b"".join(struct.pack(">h", len(name)) + name.encode() for name in (source, target))
    return struct.pack(">hq", 0, timestamp_ms), key


def stored_offset(cluster: str, topic: str, partition: int, offset: int | None) -> tuple[bytes | None, bytes]:
    """Return value and key with which Connect stores a source offset; None takes it back."""
    place = {"cluster": cluster, "partition": partition, "topic": topic}
    key = json.dumps(["MirrorSourceConnector", place], separators=(",", ":")).encode()
    return None if offset is None else json.dumps({"offset": offset}).encode(), key
