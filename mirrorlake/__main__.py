"""Run the command line as `python -m mirrorlake`."""

from mirrorlake.cli import main

main()
