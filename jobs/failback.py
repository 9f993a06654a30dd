"""Run `mirrorlake failback` as a Spark job: spark-submit jobs/failback.py --conf prod.yml --flow 'east->central' --tail restore."""

from mirrorlake.cli import run_step

run_step("failback")
