"""Run `mirrorlake pause` as a Spark job: spark-submit jobs/pause.py --conf conf/prod.yml --flow 'east->central'."""

from mirrorlake.cli import run_step

run_step("pause")
