"""Kafka's own console clients, the other language of the tests."""

from __future__ import annotations

import subprocess

from mirrorlake.runtime.jar_files import classpath
from mirrorlake.sandbox import find_java

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
ACLS = "org.apache.kafka.tools.AclCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def java(main_class: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
    result = subprocess.run(
        # The second compiler would cost more than a client that runs for seconds.
        [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-cp", classpath("broker"), main_class, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=400,
        check=check,
    )
    return result.stdout
