"""CPU per call of the collector above calling its batch function on lists, and how long a lone call waits."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable

from results import promise

from batchkit._engine.collector import Collector

CALLS, SIZE, PAIRS = 10_000, 64, 9
TARGET_CALL, TARGET_LONE, TARGET_RATIO = 25.0, 20.0, 1.3


async def lengths(items: list[str]) -> list[int]:
    return [len(item) for item in items]


async def on_lists(items: list[str]) -> None:
    for start in range(0, len(items), SIZE):
        await lengths(items[start : start + SIZE])


async def on_calls(items: list[str]) -> None:
    collector = Collector(lengths, max_batch_size=SIZE, max_batch_time=0.01)
    results = await asyncio.gather(*[collector.submit(item) for item in items])
    assert results == [len(item) for item in items]


def spent(work: Callable[[], Awaitable[None]]) -> float:
    """CPU seconds of all threads."""
    gc.collect()
    before = time.process_time()

    async def main() -> None:
        await work()

    asyncio.run(main())
    return time.process_time() - before


def lone_call() -> float:
    """Milliseconds a lone call waits beyond ``max_batch_time``, the worst of twenty."""

    async def main() -> list[float]:
        collector = Collector(lengths, max_batch_time=0.1)
        waits = []
        for _ in range(20):
            before = time.perf_counter()
            await collector.submit("hello")
            waits.append(time.perf_counter() - before - 0.1)
        return waits

    return max(asyncio.run(main())) * 1e3


def as_runnable(items: list[str]) -> tuple[list[float], list[float]] | None:
    """CPU seconds of `RunnableLambda.ainvoke` and `RunnableBatch.ainvoke`, in turn; None without langchain-core."""
    try:
        from langchain_core.runnables import RunnableLambda
    except ImportError:
        return None
    from batchkit.runnable import RunnableBatch

    async def length(item: str) -> int:
        return len(item)

    async def plain() -> None:
        runnable = RunnableLambda(length)
        await asyncio.gather(*[runnable.ainvoke(item) for item in items])

    async def batched() -> None:
        runnable = RunnableBatch(batch_fn=lengths, max_batch_size=SIZE, max_batch_time=0.01)
        await asyncio.gather(*[runnable.ainvoke(item) for item in items])

    for work in (plain, batched):
        spent(work)
    pairs = [(spent(plain), spent(batched)) for _ in range(PAIRS)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def main() -> None:
    items = [f"message {number}" for number in range(CALLS)]
    pairs = [(spent(lambda: on_lists(items)), spent(lambda: on_calls(items))) for _ in range(PAIRS)]
    extra = statistics.median(ours - lists for lists, ours in pairs) / CALLS * 1e6
    print(f"\n## Collector: {CALLS:,} concurrent calls in batches of {SIZE}, median of {PAIRS}\n")
    print("| what | target | measured |\n|---|--:|--:|")
    print(f"| CPU a call above lists | at most {TARGET_CALL:.0f} µs | {extra:.1f} µs |", flush=True)
    promise("microseconds a call in the collector", extra, TARGET_CALL)
    late = lone_call()
    print(
        f"| a lone call beyond max_batch_time, worst of 20 | at most {TARGET_LONE:.0f} ms | {late:.1f} ms |", flush=True
    )
    compared = as_runnable(items)
    if compared is not None:
        plain, batched = compared
        ratio = statistics.median(ours / theirs for theirs, ours in zip(plain, batched, strict=True))
        theirs, ours = (statistics.median(side) / CALLS * 1e6 for side in compared)
        print(
            f"| RunnableBatch / RunnableLambda | at most {TARGET_RATIO} | {ratio:.2f} ({ours:.0f} / {theirs:.0f} µs) |"
        )
        promise("RunnableBatch, against RunnableLambda", ratio, TARGET_RATIO)


if __name__ == "__main__":
    main()
