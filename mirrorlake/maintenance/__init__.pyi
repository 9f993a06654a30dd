from mirrorlake.maintenance.erase import erase_records as erase_records
from mirrorlake.maintenance.erasure_results import Erasure as Erasure
from mirrorlake.maintenance.results import Maintained as Maintained
from mirrorlake.maintenance.results import Retirement as Retirement
from mirrorlake.maintenance.selector import Selector as Selector
from mirrorlake.maintenance.upkeep import maintain_duty as maintain_duty
from mirrorlake.maintenance.upkeep import maintain_lake as maintain_lake
from mirrorlake.maintenance.upkeep import retire_flow as retire_flow
