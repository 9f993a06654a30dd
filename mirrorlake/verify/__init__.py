"""Prove that source, relay and target hold the same records, and repair a relay that holds one twice."""

from mirrorlake.verify.chosen_ranges import verify_ranges
from mirrorlake.verify.repair import Repair, repair_relay
from mirrorlake.verify.report import ProofReport
from mirrorlake.verify.verifications import Verifications
