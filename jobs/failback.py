"""Run `mirrorlake failback` as a Spark job: spark-submit jobs/failback.py --conf conf/prod.yml --flow F --tail restore."""

from mirrorlake.cli import run_step

run_step("failback")
