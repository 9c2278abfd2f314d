"""How long one provider of 64 slots takes, against the greedy makespan of the latencies that were really drawn."""

from __future__ import annotations

import statistics
import time

import pandas as pd
from makespan import makespan
from results import promise

import batchkit as bk

ROWS, LATENCY, JITTER, SLOTS, ROUNDS = 3_000, 0.2, 0.05, 64, 3
TARGET = 1.05


def measure(seed: int) -> tuple[float, float]:
    """Seconds that the rows took, and the makespan."""
    server = {"latency": LATENCY, "jitter": JITTER}
    with bk.playground(seed=seed, answer=lambda text, labels: labels[0], only=server) as play:
        provider = play.only.provider(max_concurrency=SLOTS)
        pd.DataFrame({"text": ["warm-up"]}).llm.classify("text", ["x", "y"], route=provider, progress=False)
        df = pd.DataFrame({"text": [f"row {i}" for i in range(ROWS)]})
        began = time.perf_counter()
        out = df.llm.classify("text", ["x", "y"], route=provider, progress=False)
        seconds = time.perf_counter() - began
        drawn = [request.latency for request in play.only.requests if request.text != "warm-up"]
    assert out["label"].notna().all()
    assert len(drawn) == ROWS
    return seconds, makespan(drawn, SLOTS)


def main() -> None:
    bk.use(journal=False)
    print(f"\n## One provider: {ROWS:,} rows, {LATENCY} ± {JITTER} s, {SLOTS} slots\n")
    print(
        "Ideal is the greedy makespan of the latencies drawn, in the order of arrival. A warm-up call of one row went\n"
        f"before. Target: at most {TARGET} times that.\n"
    )
    print("| round | ideal s | ours s | ours / ideal |\n|--:|--:|--:|--:|", flush=True)
    ratios = []
    for number in range(1, ROUNDS + 1):
        ours, ideal = measure(number)
        ratios.append(ours / ideal)
        print(f"| {number} | {ideal:.2f} | {ours:.2f} | {ours / ideal:.3f} |", flush=True)
    ratio = statistics.median(ratios)
    print(f"| median | | | **{ratio:.3f}** |")
    promise(f"time against the makespan, {SLOTS} slots", ratio, TARGET)


if __name__ == "__main__":
    main()
