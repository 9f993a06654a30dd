"""Run `mirrorlake restore` as a Spark job: spark-submit jobs/restore.py --source east --at … --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("restore")
