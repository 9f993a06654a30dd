"""Real Kafka clusters on this machine, from plain jars and any Java: for the demo, the notebooks and the tests."""

from mirrorlake.sandbox.cluster import KafkaCluster, start_all
from mirrorlake.sandbox.detached import Sandbox, SandboxRow
from mirrorlake.sandbox.java import Java, find_java
from mirrorlake.sandbox.properties import Listener
from mirrorlake.sandbox.traffic import SampleTraffic, write_sample_traffic

__all__ = [
    "Java",
    "KafkaCluster",
    "Listener",
    "SampleTraffic",
    "Sandbox",
    "SandboxRow",
    "find_java",
    "start_all",
    "write_sample_traffic",
]
