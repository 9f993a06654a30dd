"""Run `mirrorlake resume` as a Spark job: spark-submit jobs/resume.py --conf conf/prod.yml --flow 'east->central'."""

from mirrorlake.cli import run_step

run_step("resume")
