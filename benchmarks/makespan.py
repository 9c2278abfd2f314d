"""The shortest time that latencies allow: what the benchmarks hold a run's seconds against."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def makespan(latencies: Sequence[float], slots: int) -> float:
    """When the last of these ends if each begins, in this order, as soon as a slot is free."""
    free = [0.0] * slots
    for latency in latencies:
        heapq.heappush(free, heapq.heappop(free) + latency)
    return max(free)
