"""Run `mirrorlake lag` as a Spark job: spark-submit jobs/lag.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("lag")
