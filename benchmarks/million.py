"""A million rows in one call: time and memory per row, by a batched function that does nothing."""

from __future__ import annotations

import gc
import resource
import sys
import time

import pandas as pd
from results import promise

import batchkit as bk

ROWS, A_CALL = 1_000_000, 256
TIME, MEMORY = 40, 400


def label(prompts: list[bk.Prompt]) -> list[str]:
    return ["x"] * len(prompts)


def held() -> int:
    """Bytes of this process in memory; its peak so far where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return peak()


def peak() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def main() -> None:
    provider = bk.FunctionProvider(label, batched=True, rows_per_request=A_CALL, name="f")
    df = pd.DataFrame({"text": [f"Order {i} was charged twice" for i in range(ROWS)]})
    df.head(100).llm.classify("text", ["x", "y"], route=provider, progress=False, journal=False)
    gc.collect()
    before, began = held(), time.perf_counter()
    out = df.llm.classify("text", ["x", "y"], route=provider, progress=False, journal=False)
    seconds = time.perf_counter() - began
    assert len(bk.last_run().requests) == ROWS
    assert (out["label"] == "x").all()
    print(f"\n## {ROWS:,} rows through a function, {A_CALL} a call, without a journal\n")
    print("| | measured | target |\n|---|--:|--:|")
    print(f"| microseconds a row | {seconds / ROWS * 1e6:.1f} | {TIME} |")
    space = (peak() - before) / ROWS
    print(f"| bytes a row at the peak, above the frame, `.requests` included | {space:.0f} | {MEMORY} |")
    promise("microseconds a row, a million rows", seconds / ROWS * 1e6, TIME)
    promise("bytes a row at the peak, a million rows", space, MEMORY)


if __name__ == "__main__":
    main()
