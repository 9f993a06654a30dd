"""Run `mirrorlake restore` as a Spark job: spark-submit jobs/restore.py --conf F --source east --topics T --at T1 --into B."""

from mirrorlake.cli import run_step

run_step("restore")
