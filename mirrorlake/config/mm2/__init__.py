"""Import MirrorMaker 2's settings: properties, Kafka Connect's JSON, Strimzi's YAML."""

from mirrorlake.config.mm2.importer import import_mm2
