"""Run `mirrorlake report` as a Spark job: spark-submit jobs/report.py --conf conf/prod.yml --out /Volumes/main/reports/lag.html."""

from mirrorlake.cli import run_step

run_step("report")
