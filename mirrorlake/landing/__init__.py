"""Kafka to relay: one streaming query a source cluster, and an account of every offset."""
