"""Kafka's own console clients, the other language of the tests."""

from __future__ import annotations

import subprocess

from mirrorlake.sandbox import broker
from mirrorlake.sandbox.properties import JAVA_OPTIONS

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
ACLS = "org.apache.kafka.tools.AclCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def java(main_class: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
    result = subprocess.run(
        # As a sandbox's broker is started: a client runs for seconds.
        broker._java((*JAVA_OPTIONS, *broker._archived("client")), main_class, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=400,
        check=check,
    )
    return result.stdout
