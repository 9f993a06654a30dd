from mirrorlake.verify.chosen_ranges import verify_ranges as verify_ranges
from mirrorlake.verify.repair import Repair as Repair
from mirrorlake.verify.repair import repair_relay as repair_relay
from mirrorlake.verify.report import ProofReport as ProofReport
from mirrorlake.verify.verifications import Verifications as Verifications
