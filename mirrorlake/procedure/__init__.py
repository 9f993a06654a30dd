"""Carry out commands of several steps: failover, failback, cutover, replay and restore."""

from mirrorlake.procedure.journal import BEGIN, DONE, Journal, Operation, StepDone, StepHook, no_hook
from mirrorlake.procedure.procedure import Procedure, Refusal, Step
