"""Run the benchmarks, each in a process of its own, and print Markdown tables.

``python benchmarks/run.py [--only seeds|cpu|limits|million|journal|collector|import]``
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
FILES = {
    "seeds": "seeds.py",
    "cpu": "cpu.py",
    "limits": "limits.py",
    "million": "million.py",
    "journal": "journal.py",
    "collector": "collector.py",
    "import": "imports.py",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=FILES, help="run this one alone")
    only = parser.parse_args().only
    packages = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "orjson", "pandas"))
    print(f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {packages}", flush=True)
    failures = 0
    for name in [only] if only else FILES:
        failures += subprocess.run([sys.executable, HERE / FILES[name]], check=False).returncode != 0
    return failures


if __name__ == "__main__":
    sys.exit(main())
