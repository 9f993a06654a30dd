"""Run `mirrorlake drill` as a Spark job: spark-submit jobs/drill.py --conf conf/prod.yml --flow 'east->central' --every 1w."""

from mirrorlake.cli import run_step

run_step("drill")
