"""The demo: two clusters on this machine, a mirror between them, and a look at the result."""
