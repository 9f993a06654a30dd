"""Run `mirrorlake status` as a Spark job: spark-submit jobs/status.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("status")
