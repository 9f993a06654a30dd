"""Read MirrorMaker 2's settings: properties, Kafka Connect's JSON, Strimzi's YAML."""
