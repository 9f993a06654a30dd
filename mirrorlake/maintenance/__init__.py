"""Maintain a lake in use: compaction, retention, erasure, log checkpoints, vacuum, ledgers."""

from mirrorlake.maintenance.erase import erase_records
from mirrorlake.maintenance.erasure_results import Erasure
from mirrorlake.maintenance.results import Maintained, Retirement
from mirrorlake.maintenance.selector import Selector
from mirrorlake.maintenance.upkeep import maintain_duty, maintain_lake, retire_flow
