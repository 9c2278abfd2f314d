"""Run the benchmarks, each in a process of its own, and print Markdown tables. ``--only NAME`` runs one alone."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from results import load, machine

HERE = Path(__file__).parent
FILES = {
    "seeds": "seeds.py",
    "latency": "latency.py",
    "mixed": "mixed.py",
    "cpu": "cpu.py",
    "peers": "peers.py",
    "limits": "limits.py",
    "tokens": "tokens.py",
    "million": "million.py",
    "journal": "journal.py",
    "collector": "collector.py",
    "import": "imports.py",
    "plot": "plot.py",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=FILES, help="run this one alone")
    only = parser.parse_args().only
    print(machine(), flush=True)
    failures = 0
    for name in [only] if only else FILES:
        print(f"\nLoad before {name}: {load()}.", flush=True)
        failures += subprocess.run([sys.executable, HERE / FILES[name]], check=False).returncode != 0
    return failures


if __name__ == "__main__":
    sys.exit(main())
