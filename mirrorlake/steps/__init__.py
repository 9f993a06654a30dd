"""Floor 4: one use case per file; clients, sessions and clocks are handed in."""
