"""Floor 2: the only importer of confluent_kafka.

Client options, admin, groups, watermarks, the lane producer and the ledger.
"""
