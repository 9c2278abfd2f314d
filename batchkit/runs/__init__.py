"""Runs: what a person holds while rows are being asked about, and ever after."""

from batchkit.runs.job import Finished, Job, carry_out_async, start
from batchkit.runs.plan import Plan
from batchkit.runs.record import Record
from batchkit.runs.run import Run, View, carry_out, last_run
from batchkit.runs.terms import Asked, Cost, Output, Terms

__all__ = [
    "Asked",
    "Cost",
    "Finished",
    "Job",
    "Output",
    "Plan",
    "Record",
    "Run",
    "Terms",
    "View",
    "carry_out",
    "carry_out_async",
    "last_run",
    "start",
]
