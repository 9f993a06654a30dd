"""Single records: browse them, compare their copies, follow one from cluster to cluster, query them with SQL."""
