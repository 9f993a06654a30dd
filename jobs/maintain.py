"""Run `mirrorlake maintain` as a Spark job: spark-submit jobs/maintain.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("maintain")
