"""Run `mirrorlake erase` as a Spark job: spark-submit jobs/erase.py --conf conf/prod.yml --source east --topic T --key K --reason R."""

from mirrorlake.cli import run_step

run_step("erase")
