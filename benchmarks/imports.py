"""What `import batchkit` adds to `import pandas`, in fresh interpreters."""

from __future__ import annotations

import statistics
import subprocess
import sys

from results import promise

TIMES = 11
TARGET = 0.25
PROGRAM = """
import time
start = time.perf_counter()
import pandas
middle = time.perf_counter()
import batchkit
print(middle - start, time.perf_counter() - middle)
"""


def measure() -> tuple[float, float]:
    """Seconds to import pandas, and seconds more to import batchkit."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    pandas, batchkit = map(float, done.stdout.split())
    return pandas, batchkit


def main() -> None:
    measure()  # writes the byte code, which only the first import ever does
    times = [measure() for _ in range(TIMES)]
    pandas, batchkit = (statistics.median(side) for side in zip(*times, strict=True))
    print(f"\n## Importing, median of {TIMES} fresh interpreters\n")
    print(
        f"| pandas s | batchkit on top s | target s |\n|--:|--:|--:|\n| {pandas:.3f} | **{batchkit:.3f}** | {TARGET} |"
    )
    promise("seconds that importing batchkit adds to pandas", batchkit, TARGET)


if __name__ == "__main__":
    main()
