"""Real Kafka clusters on this machine, from plain jars and any Java, for the demo, notebooks and tests."""

from mirrorlake.runtime import Java, find_java
from mirrorlake.sandbox.cluster import KafkaCluster, start_all
from mirrorlake.sandbox.detached import Sandbox, SandboxRow
from mirrorlake.sandbox.mirror_maker import MirrorMaker, base_properties
from mirrorlake.sandbox.place import Place
from mirrorlake.sandbox.properties import Listener
from mirrorlake.sandbox.sales import write_sales
from mirrorlake.sandbox.traffic import SampleTraffic, sample_topics, write_sample_traffic
