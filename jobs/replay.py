"""Run `mirrorlake replay` as a Spark job: spark-submit jobs/replay.py --name march --source east … --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("replay")
