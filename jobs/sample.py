"""Run `mirrorlake sample` as a Spark job: spark-submit jobs/sample.py --conf conf/prod.yml."""

from mirrorlake.cli import run_step

run_step("sample")
