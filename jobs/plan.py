"""Run `mirrorlake plan` as a Spark job: spark-submit jobs/plan.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("plan")
