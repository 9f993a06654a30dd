"""The services that one mirror is composed of, each over the connections of the mirror."""
