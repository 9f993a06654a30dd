"""Run `mirrorlake doctor` as a Spark job: spark-submit jobs/doctor.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("doctor")
