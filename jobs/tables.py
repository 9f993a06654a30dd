"""Run `mirrorlake tables --run` as a Spark job: spark-submit jobs/tables.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("tables", "--run")
