"""Run the command line as `python -m mirrorlake.cli`."""

from mirrorlake.cli.app import main

main()
