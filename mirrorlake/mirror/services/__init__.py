"""The services that one mirror is composed of, each over the context of the mirror."""
