"""Pictures of a run, and the numbers behind them. The only package that draws, loaded for the first picture."""

from batchkit.plots._canvas import Picture
from batchkit.plots._compare import compare
from batchkit.plots._dashboard import dashboard
from batchkit.plots._data import (
    RunLike,
    assign_slots,
    compare_data,
    latency_data,
    outcome_data,
    throughput_data,
    timeline_data,
)
from batchkit.plots._latency import latency
from batchkit.plots._throughput import throughput
from batchkit.plots._timeline import timeline
from batchkit.plots._tuning import tuning

__all__ = [
    "Picture",
    "RunLike",
    "assign_slots",
    "compare",
    "compare_data",
    "dashboard",
    "latency",
    "latency_data",
    "outcome_data",
    "throughput",
    "throughput_data",
    "timeline",
    "timeline_data",
    "tuning",
]
