"""What the journal costs: CPU per request with it on against off, and seconds for a re-run that asks nobody.

The client is pinned to one core for the first, the server is another process on another core.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from cpu import IN_FLIGHT, LABELS, ROWS, WARM_UP, Bare, pin, serving, spent, texts
from results import promise

import batchkit as bk
from batchkit._engine.callers import HttpCaller
from batchkit._logic.labels import LabelSet
from batchkit._logic.tasks import Classify
from batchkit.records import Question

ROUNDS = 11
TARGET = 0.25
MANY, TARGET_SECONDS = 100_000, 3.0


def ask(provider: bk.OpenAI, rows: Sequence[str], journal: Path | bool) -> None:
    frame = pd.DataFrame({"text": rows})
    out = frame.llm.classify("text", LABELS, route=provider, progress=False, journal=journal)
    assert (out["label"] == "billing").all()


def measure_cpu(base_url: str, folder: Path) -> None:
    """Bare, off and on in turn, each with rows of its own."""
    provider = bk.OpenAI("bench", base_url=base_url, api_key="none", max_concurrency=IN_FLIGHT)
    lane = provider._lane(Classify(LabelSet.of(LABELS)), [], None)
    caller = lane.caller
    assert isinstance(caller, HttpCaller)
    bare = Bare(caller)

    def bodies(rows: Sequence[str]) -> list[bytes]:
        return [caller._body(Question(lane.brief, text)) for text in rows]

    bare.ask(bodies(texts(0, WARM_UP)))
    for journal in (False, folder / "cpu.sqlite"):
        ask(provider, texts(0, WARM_UP), journal)
    print("| round | bare µs | off µs | on µs | (on - off) / bare |\n|--:|--:|--:|--:|--:|", flush=True)
    rounds = []
    for number in range(1, ROUNDS + 1):
        rows = texts(number * ROWS, ROWS)
        off = partial(ask, provider, rows, False)
        on = partial(ask, provider, rows, folder / "cpu.sqlite")
        plain = spent(partial(bare.ask, bodies(rows)))
        # Which goes first alternates: what the second one finds warm would count for the journal.
        pair = (spent(off), spent(on)) if number % 2 else tuple(reversed((spent(on), spent(off))))
        rounds.append((plain, *pair))
        print_round(str(number), *rounds[-1])
    bare.close()
    print_round("least", *map(min, zip(*rounds, strict=True)))
    share = statistics.median((on - off) / plain for plain, off, on in rounds)
    print(f"\nMedian of the rounds: **{share:.2f}**, target at most {TARGET}.")
    promise("CPU that the journal adds, in bare aiohttp clients", share, TARGET)


def print_round(name: str, plain: float, off: float, on: float) -> None:
    micro = (f"{seconds / ROWS * 1e6:.0f}" for seconds in (plain, off, on))
    print(f"| {name} | {' | '.join(micro)} | {(on - off) / plain:.2f} |", flush=True)


def measure_rerun(base_url: str, folder: Path) -> None:
    """A re-run of rows that are all in the journal."""
    provider = bk.OpenAI("bench", base_url=base_url, api_key="none", max_concurrency=IN_FLIGHT)
    rows = texts(0, MANY)
    ask(provider, rows, folder / "many.sqlite")
    seconds = []
    for _ in range(3):
        before = time.perf_counter()
        ask(provider, rows, folder / "many.sqlite")
        seconds.append(time.perf_counter() - before)
        assert bk.last_run().requests.empty
    print(f"\n## A re-run of {MANY:,} rows that are all in the journal\n")
    print("| run | seconds | target |\n|--:|--:|--:|")
    for number, took in enumerate(seconds, 1):
        print(f"| {number} | {took:.2f} | {TARGET_SECONDS} |")
    promise(f"seconds of a re-run of {MANY:,} journaled rows", statistics.median(seconds), TARGET_SECONDS)


def main() -> None:
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    other_core = pin()
    with tempfile.TemporaryDirectory() as name, serving(other_core) as base_url:
        print(f"\n## CPU per request with the journal on: {ROWS:,} rows, {IN_FLIGHT} in flight, zero latency\n")
        measure_cpu(base_url, Path(name))
        if cores is not None:
            os.sched_setaffinity(0, cores)
        measure_rerun(base_url, Path(name))


if __name__ == "__main__":
    main()
