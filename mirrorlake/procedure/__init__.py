"""Carry out commands of several steps: failover, failback, cutover and replay."""

from mirrorlake.procedure.journal import BEGIN, DONE, Journal, Operation, StepDone
from mirrorlake.procedure.procedure import Procedure, Refusal, Step
