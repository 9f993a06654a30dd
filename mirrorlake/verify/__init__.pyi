"""The face of `mirrorlake.verify`: what other rooms use of it; its modules are its own."""

from mirrorlake.verify.cut import take_cut as take_cut
from mirrorlake.verify.relays import Relays as Relays
from mirrorlake.verify.repair import Repair as Repair
from mirrorlake.verify.repair import repair_relay as repair_relay
from mirrorlake.verify.report import ProofReport as ProofReport
from mirrorlake.verify.report import proof_report as proof_report
from mirrorlake.verify.scope import Scope as Scope
from mirrorlake.verify.scope import between as between
from mirrorlake.verify.tracking import Timed as Timed
from mirrorlake.verify.tracking import track_verification as track_verification
from mirrorlake.verify.verify import Verification as Verification
from mirrorlake.verify.verify import Verifier as Verifier
