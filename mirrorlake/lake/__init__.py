"""Delta tables: their columns, how they are read and appended to."""
