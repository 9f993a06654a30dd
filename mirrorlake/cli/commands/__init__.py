"""The commands, a file a subject; each function with `@command()` is one."""
