"""The face of `mirrorlake.maintenance`: what other rooms use of it; its modules are its own."""

from mirrorlake.maintenance.compaction import SentUpTo as SentUpTo
from mirrorlake.maintenance.erased_targets import ErasedTargets as ErasedTargets
from mirrorlake.maintenance.erased_targets import transactional_id_of as transactional_id_of
from mirrorlake.maintenance.erasure import Eraser as Eraser
from mirrorlake.maintenance.erasure_results import CHOICES as CHOICES
from mirrorlake.maintenance.erasure_results import REWRITE as REWRITE
from mirrorlake.maintenance.erasure_results import TOMBSTONE as TOMBSTONE
from mirrorlake.maintenance.erasure_results import Erasure as Erasure
from mirrorlake.maintenance.erasure_results import sending_again as sending_again
from mirrorlake.maintenance.maintain import LakeUpkeep as LakeUpkeep
from mirrorlake.maintenance.removal import quarantined_by as quarantined_by
from mirrorlake.maintenance.results import Maintained as Maintained
from mirrorlake.maintenance.results import Retirement as Retirement
from mirrorlake.maintenance.results import TrimmedLedger as TrimmedLedger
from mirrorlake.maintenance.retention import Guard as Guard
from mirrorlake.maintenance.retention import replaying as replaying
from mirrorlake.maintenance.selector import Selector as Selector
