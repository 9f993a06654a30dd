"""Run `mirrorlake groups` as a Spark job: spark-submit jobs/groups.py --conf conf/prod.yml --flow 'east->central' --apply."""

from mirrorlake.cli import run_step

run_step("groups")
