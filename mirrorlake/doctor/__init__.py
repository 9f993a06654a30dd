"""Check settings, clusters and tables, and name the failing layer with its repair."""
