"""How much of a limit is used, and how often it is overstepped: known, told in headers, and found by refusals.

The server lets one second's worth of its limit go at once and says with each refusal how long to wait.
"""

from __future__ import annotations

import time

import pandas as pd
from results import promise

import batchkit as bk

ROWS, RPM, LATENCY, JITTER, IN_FLIGHT = 1_500, 6_000, 0.2, 0.05, 64
WAYS = {
    "known (`rpm=6000`)": (0.97, "none", True, False),
    "told in headers": (0.93, "under 1 %", False, True),
    "told by refusals alone": (0.80, "under 3 %", False, False),
}


def measure(way: str, dialect: str) -> float:
    """The share of the limit that was used, and a line of the table."""
    least, refusals, known, told = WAYS[way]
    server = {"dialect": dialect, "latency": LATENCY, "jitter": JITTER, "rpm": RPM, "limit_headers": told}
    with bk.playground(answer=lambda text, labels: labels[0], only=server) as play:
        provider = play.only.provider(max_concurrency=IN_FLIGHT, **({"rpm": RPM} if known else {}))
        df = pd.DataFrame({"text": [f"row {i}" for i in range(ROWS)]})
        began = time.perf_counter()
        out = df.llm.classify("text", ["x", "y"], route=provider, progress=False)
        seconds = time.perf_counter() - began
        refused = play.only.counts["over_rpm"]
    assert out["label"].notna().all()
    used = ROWS / (seconds * RPM / 60)
    print(
        f"| {way} | {dialect} | {seconds:.2f} | {used:.0%} | at least {least:.0%} | {refused} "
        f"| {refused / ROWS:.1%} | {refusals} |",
        flush=True,
    )
    return used


def main() -> None:
    bk.use(journal=False)
    ideal = ROWS / RPM * 60
    print(f"\n## A limit of {RPM:,} requests a minute: {ROWS:,} rows, {LATENCY} ± {JITTER} s, {IN_FLIGHT} slots\n")
    print(f"At the limit, but for the second's worth that may go at once, they take {ideal:.1f} s.\n")
    print("| limit | dialect | seconds | used | target | refused | of all | target |")
    print("|---|---|--:|--:|--:|--:|--:|--:|", flush=True)
    for way in WAYS:
        used = min(measure(way, dialect) for dialect in ("openai", "anthropic"))
        promise(f"use of a limit of requests, {way.partition(' (')[0]}", used, WAYS[way][0], at_least=True)


if __name__ == "__main__":
    main()
