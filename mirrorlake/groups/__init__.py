"""Consumer groups: where each one would go on, who moved it last, and what is written down of both."""
