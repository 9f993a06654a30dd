"""A lane: records of a fixed set of source partitions, sent in transactions of one producer."""
