"""Floor 3: the only place that starts a StreamingQuery: land and republish."""
