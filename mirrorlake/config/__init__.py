"""Floor 1: typed settings, read from one YAML file, every fault reported at once."""
