"""Run `mirrorlake failover` as a Spark job: spark-submit jobs/failover.py --conf conf/prod.yml --flow 'east->central'."""

from mirrorlake.cli import run_step

run_step("failover")
