"""Run `mirrorlake cutover` as a Spark job: spark-submit jobs/cutover.py --conf conf/prod.yml --flow 'east->central'."""

from mirrorlake.cli import run_step

run_step("cutover")
