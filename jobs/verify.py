"""Run `mirrorlake verify` as a Spark job: spark-submit jobs/verify.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("verify")
