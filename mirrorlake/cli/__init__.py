"""The command line. Every command is also a method of `Mirror` or `FlowHandle`, and a job."""

from mirrorlake.cli.app import main

__all__ = ["main"]
