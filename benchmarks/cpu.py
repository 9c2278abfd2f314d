"""CPU per request at zero latency, against a bare aiohttp client that sends the same bytes.

The client is pinned to one core, the server is another process on another core. Bare is always on asyncio's own loop;
ours once more on uvloop, where that is installed: ``cpu.py uvloop``, in a process of its own.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import aiohttp
import orjson
import pandas as pd
from results import promise

import batchkit as bk
from batchkit._engine.callers import HttpCaller
from batchkit._logic.labels import LabelSet
from batchkit._logic.tasks import Classify
from batchkit.records import Question

LABELS = ["billing", "delivery", "defect"]
ROWS, WARM_UP, IN_FLIGHT, PAIRS = 2_000, 100, 64, 5
TARGETS = {"asyncio": 1.3, "uvloop": 1.0}


@contextmanager
def serving(core: int | None) -> Iterator[str]:
    """The server in its own process; yields its base URL."""
    command = [sys.executable, str(Path(__file__).with_name("server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1"
        process.stdin.close()


def pin() -> int | None:
    """Keep this process on one core and return another one, where that is possible."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        return None
    os.sched_setaffinity(0, {cores[0]})
    return cores[1]


def cpu_seconds() -> float:
    """User and system time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def spent(work: Callable[[], object]) -> float:
    gc.collect()
    before = cpu_seconds()
    work()
    return cpu_seconds() - before


def texts(start: int, count: int) -> list[str]:
    return [f"Order {i} was charged twice, please refund one of the payments." for i in range(start, start + count)]


class Bare:
    """What anybody could write: workers that pull bodies, post them, read and parse."""

    def __init__(self, caller: HttpCaller) -> None:
        self._url, self._headers = caller._url, caller._headers
        self._runner = asyncio.Runner()
        self._session = self._runner.run(self._open())

    async def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=60),
        )

    def ask(self, bodies: Sequence[bytes]) -> None:
        self._runner.run(self._ask(bodies))

    async def _ask(self, bodies: Sequence[bytes]) -> None:
        replies = []
        waiting = iter(bodies)

        async def work() -> None:
            for body in waiting:
                async with self._session.post(self._url, data=body, headers=self._headers) as response:
                    replies.append(orjson.loads(await response.read()))

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(work())
        assert len(replies) == len(bodies)

    def close(self) -> None:
        self._runner.run(self._session.close())
        self._runner.close()


def ask_ours(provider: bk.OpenAI, rows: Sequence[str]) -> None:
    out = pd.DataFrame({"text": rows}).llm.classify("text", LABELS, route=provider, progress=False)
    assert (out["label"] == "billing").all()


def measure(loop: str) -> None:
    if loop == "asyncio":
        sys.modules["uvloop"] = None  # type: ignore[assignment]
    bk.use(journal=False)
    other_core = pin()
    with serving(other_core) as base_url:
        provider = bk.OpenAI("bench", base_url=base_url, api_key="none", max_concurrency=IN_FLIGHT)
        lane = provider._lane(Classify(LabelSet.of(LABELS)), [], None)
        caller = lane.caller
        assert isinstance(caller, HttpCaller)
        bare = Bare(caller)
        bare.ask([caller._body(Question(lane.brief, text)) for text in texts(0, WARM_UP)])
        ask_ours(provider, texts(0, WARM_UP))

        print(f"\n## CPU per request on {loop}: {ROWS:,} rows, {IN_FLIGHT} in flight, zero latency\n")
        cores = "The client has one core, the server another" if other_core is not None else "Nothing is pinned"
        print(f"{cores}. Target: at most {TARGETS[loop]} times bare.\n")
        print("| pair | bare µs | ours µs | ratio |\n|--:|--:|--:|--:|", flush=True)
        pairs = []
        for number in range(1, PAIRS + 1):
            rows = texts(number * ROWS, ROWS)
            bodies = [caller._body(Question(lane.brief, text)) for text in rows]
            pair = (spent(partial(bare.ask, bodies)), spent(partial(ask_ours, provider, rows)))
            pairs.append(pair)
            print_pair(str(number), *pair)
        bare.close()
    ratio = statistics.median(ours / plain for plain, ours in pairs)
    plain, ours = (statistics.median(side) / ROWS * 1e6 for side in zip(*pairs, strict=True))
    print_pair("least", *map(min, zip(*pairs, strict=True)))
    print(f"| median | {plain:.0f} | {ours:.0f} | **{ratio:.2f}** |")
    promise(f"CPU per request on {loop}, against a bare aiohttp client", ratio, TARGETS[loop])


def print_pair(name: str, plain: float, ours: float) -> None:
    print(f"| {name} | {plain / ROWS * 1e6:.0f} | {ours / ROWS * 1e6:.0f} | {ours / plain:.2f} |", flush=True)


def main() -> int:
    if sys.argv[1:]:
        measure(sys.argv[1])
        return 0
    loops = [loop for loop in TARGETS if importlib.util.find_spec(loop)]
    if "uvloop" not in loops:
        print("\nCPU per request on uvloop: not measured, it is not installed.")
    return sum(subprocess.run([sys.executable, __file__, loop], check=False).returncode != 0 for loop in loops)


if __name__ == "__main__":
    sys.exit(main())
