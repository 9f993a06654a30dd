"""Run `mirrorlake apply` as a Spark job: spark-submit jobs/apply.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("apply")
