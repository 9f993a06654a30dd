"""Run `mirrorlake land` as a Spark job: spark-submit jobs/land.py --conf conf/prod.yml --source east."""

from mirrorlake.cli import run_step

run_step("land")
