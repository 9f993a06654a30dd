"""Write records to the relay itself, once for all targets: a frame, a file, a producer."""

from mirrorlake.publish.file import read_records_of
from mirrorlake.publish.producer import LakeProducer
from mirrorlake.publish.publisher import Published, publisher_of
