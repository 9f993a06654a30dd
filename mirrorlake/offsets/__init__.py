"""The offset map: translate a position, resume a reader, rebuild a target from its own records."""
