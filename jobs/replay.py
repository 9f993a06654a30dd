"""Run `mirrorlake replay` as a Spark job: spark-submit jobs/replay.py --conf conf/prod.yml --source east --topic T --into B:T2."""

from mirrorlake.cli import run_step

run_step("replay")
