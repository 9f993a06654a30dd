"""Write records to the relay itself, once for all targets: a frame, a file, a producer."""
