"""A fast and a slow provider in one run: whether it ends when the slower one alone would."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pandas as pd
from makespan import makespan
from results import promise

import batchkit as bk

ROWS, ROUNDS = 400, 5
SERVERS: dict[str, dict[str, Any]] = {
    "fast": {"latency": 0.05, "jitter": 0.01, "max_concurrency": 32},
    "slow": {"dialect": "anthropic", "latency": 0.4, "jitter": 0.1, "max_concurrency": 16},
}
TARGET = 1.05


def measure(df: pd.DataFrame, *, together: bool, seed: int) -> tuple[float, float, float]:
    """Seconds until all is answered; seconds until the fast provider's rows are, and their makespan."""
    # The same seed draws the same latency for the same row, whoever else is asked.
    with bk.playground(seed=seed, answer=lambda text, labels: labels[0], **SERVERS) as play:
        fast, slow = play.fast.provider(), play.slow.provider()
        for provider in (fast, slow):
            pd.DataFrame({"text": ["warm-up"]}).llm.classify("text", ["x", "y"], route=provider, progress=False)
        route = bk.split({fast: ROWS // 2, slow: ...}) if together else slow
        began = time.monotonic()
        out = df.llm.classify("text", ["x", "y"], route=route, progress=False)
        seconds = time.monotonic() - began
        of_fast = play.fast.requests[1:]
    assert out["label"].notna().all()
    done = max((request.answered for request in of_fast), default=began) - began
    return seconds, done, makespan([request.latency for request in of_fast], SERVERS["fast"]["max_concurrency"])


def main() -> None:
    bk.use(journal=False)
    df = pd.DataFrame({"text": [f"row {i}" for i in range(ROWS)]})
    print(f"\n## A fast and a slow provider in one run: {ROWS} rows, half and half\n")
    print(
        "Fast is 0.05 ± 0.01 s with 32 slots, slow is 0.4 ± 0.1 s with 16. Alone is the slow one with its half of the\n"
        f"rows and equal latencies. Target: at most {TARGET} times that. Which of the two goes first alternates.\n"
    )
    print("| round | alone s | together s | together / alone | fast half done s | its makespan s |")
    print("|--:|--:|--:|--:|--:|--:|", flush=True)
    ratios = []
    for number in range(1, ROUNDS + 1):
        together = measure(df, together=True, seed=number) if number % 2 else None
        alone, _, _ = measure(df[ROWS // 2 :], together=False, seed=number)
        both, done, ideal = together or measure(df, together=True, seed=number)
        ratios.append(both / alone)
        print(f"| {number} | {alone:.2f} | {both:.2f} | {both / alone:.3f} | {done:.2f} | {ideal:.2f} |", flush=True)
    ratio = statistics.median(ratios)
    print(f"| median | | | **{ratio:.3f}** | | |")
    promise("a fast and a slow provider, against the slow one alone", ratio, TARGET)


if __name__ == "__main__":
    main()
