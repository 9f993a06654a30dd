"""Prove that source, relay and target hold the same records, and repair a relay that holds one twice."""
