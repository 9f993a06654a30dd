"""Delta tables: their columns, how they are read and appended to, and what each of them tells."""
