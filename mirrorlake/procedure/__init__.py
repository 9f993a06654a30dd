"""Carry out commands of several steps: failover, failback, cutover, drill, replay and restore."""

from mirrorlake.procedure.journal import BEGIN as BEGIN
from mirrorlake.procedure.journal import DONE as DONE
from mirrorlake.procedure.journal import Journal as Journal
from mirrorlake.procedure.journal import Operation as Operation
from mirrorlake.procedure.journal import StepDone as StepDone
from mirrorlake.procedure.journal import StepHook as StepHook
from mirrorlake.procedure.procedure import Procedure as Procedure
from mirrorlake.procedure.procedure import Refusal as Refusal
from mirrorlake.procedure.procedure import Step as Step
