"""The face of `mirrorlake.verify`: what other rooms use of it; its modules are its own."""

from mirrorlake.verify.repair import Repair as Repair
from mirrorlake.verify.repair import repair_relay as repair_relay
from mirrorlake.verify.report import ProofReport as ProofReport
from mirrorlake.verify.verifications import Verifications as Verifications
