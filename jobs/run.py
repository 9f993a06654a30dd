"""Run `mirrorlake run` as a Spark job: spark-submit jobs/run.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("run")
