"""Relay to target: fencing, lanes, backfill, the copies of the ledger, quarantine."""
