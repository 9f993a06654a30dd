from mirrorlake.publish.file import read_records_of as read_records_of
from mirrorlake.publish.producer import LakeProducer as LakeProducer
from mirrorlake.publish.publisher import Published as Published
from mirrorlake.publish.publisher import publisher_of as publisher_of
