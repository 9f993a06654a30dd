"""Run `mirrorlake republish` as a Spark job: spark-submit jobs/republish.py --conf conf/prod.yml --flow 'east->central'."""

from mirrorlake.cli import run_step

run_step("republish")
