"""Run a command of mirrorlake as a Spark job: spark-submit jobs/mirrorlake.py run --conf conf/prod.yml."""

import sys
from pathlib import Path

# This file has the name of the package, which is never in its folder.
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]

from mirrorlake.cli import main  # noqa: E402

main(sys.argv[1:])
