"""The seeds of the idea: 30, 60 and 120 rows over two providers of 5 and 3 slots, against one row at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
from makespan import makespan
from results import promise

import batchkit as bk
from batchkit._playground import Playground, RunningServer

LABELS = ["billing", "delivery", "defect"]
SLOTS = {"first": 5, "second": 3}
TARGET = 1.08
SAMPLE = 5
"""Rows per provider that are asked one at a time."""


def servers() -> Playground:
    play: Playground = bk.playground(
        answer=lambda text, labels: labels[len(text) % len(labels)],
        first={"dialect": "openai", "latency": 0.4, "jitter": 0.1},
        second={"dialect": "anthropic", "latency": 0.6, "jitter": 0.1},
    )
    return play


def frame(rows: int, what: str) -> pd.DataFrame:
    return pd.DataFrame({"text": [f"{what} {i}: where is my parcel?" for i in range(rows)]})


class Peaks:
    """The most threads and sockets that this process had."""

    def __init__(self) -> None:
        self.threads = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            # Without the one that counts.
            self.threads = max(self.threads, len(os.listdir("/proc/self/task")) - 1)

    @contextmanager
    def watched(self) -> Iterator[None]:
        if os.path.exists("/proc/self/task"):
            self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            if self._thread.is_alive():
                self._thread.join()


def measure(way: str, rows: int, settings: dict[str, Any]) -> float:
    """Label so many rows on fresh servers: how long that took by the makespan, and a line of the table."""
    with servers() as play:
        providers = {name: play[name].provider(max_concurrency=SLOTS[name], **settings) for name in SLOTS}
        route = bk.split({providers["first"]: rows * 2 // 3, providers["second"]: ...})
        asked = frame(rows, "row")
        peaks = Peaks()
        with peaks.watched():
            before = time.perf_counter()
            out = asked.llm.classify("text", LABELS, route=route, progress=False)
            ours = time.perf_counter() - before
        assert out["label"].notna().all()
        drawn = {name: [request.latency for request in play[name].requests] for name in SLOTS}
        ideal = max(makespan(drawn[name], SLOTS[name]) for name in SLOTS)
        serial = sum(map(sum, drawn.values()))
        sockets = ", ".join(str(play[name].peak_connections) for name in SLOTS)
    cells = [
        way, str(rows), f"{serial:.2f}", f"{ours:.2f}", f"{serial / ours:.1f}", f"{ideal:.2f}",
        f"{ours / ideal:.3f}", str(peaks.threads), sockets,
    ]  # fmt: skip
    print("|", " | ".join(cells), "|", flush=True)
    return ours / ideal


def overhead_one_at_a_time() -> tuple[float, float]:
    """Seconds that a sample asked one row at a time took, and the seconds of them that the server drew."""
    took, drawn = 0.0, 0.0
    with servers() as play:
        for name in SLOTS:
            server: RunningServer = play[name]
            before = time.perf_counter()
            frame(SAMPLE, "sample").llm.classify(
                "text", LABELS, route=server.provider(max_concurrency=1), progress=False
            )
            took += time.perf_counter() - before
            drawn += sum(request.latency for request in server.requests)
    return took, drawn


def warm_up() -> None:
    """Import and start what the first call of a process imports and starts."""
    with servers() as play:
        for name in SLOTS:
            frame(1, "warm-up").llm.classify("text", LABELS, route=play[name].provider(), progress=False)


def main() -> None:
    bk.use(journal=False)
    warm_up()
    took, drawn = overhead_one_at_a_time()
    print(f"\n## Two providers of {SLOTS['first']} and {SLOTS['second']} slots, two rows of three to the first\n")
    print(
        f"Latencies are drawn: 0.4 s and 0.6 s on average, standard deviation 0.1 s. Serial is their sum\n"
        f"({2 * SAMPLE} rows really asked one at a time took {took / drawn:.3f} times theirs). Ideal is the greedy\n"
        f"makespan of those drawn, for the slower provider (target: ours at most {TARGET} times that).\n"
    )
    print("| connections | rows | serial s | ours s | serial / ours | ideal s | ours / ideal | threads | sockets |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    ways: dict[str, dict[str, Any]] = {"reused": {}, "one a request": {"headers": {"Connection": "close"}}}
    ratios = [measure(way, rows, settings) for way, settings in ways.items() for rows in (30, 60, 120)]
    promise("time against the makespan, the slower of two providers", max(ratios), TARGET)
    print("\nThreads and sockets are peaks; threads are those of the whole process, the servers' included.")


if __name__ == "__main__":
    main()
