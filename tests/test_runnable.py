"""`RunnableBatch`: single calls in, batches out, with LangChain where it is installed and without."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import batchkit as bk
from tests.engine import virtual

ROOT = Path(__file__).parent.parent


class Boom(Exception):
    pass


class Sizes:
    """A batch function that notes its batches."""

    def __init__(self, fails=()):
        self.batches = []
        self.fails = set(fails)

    def __call__(self, items):
        self.batches.append(list(items))
        return [Boom(item) if item in self.fails else f"<{item}>" for item in items]

    @property
    def sizes(self):
        return [len(batch) for batch in self.batches]


class AsyncSizes(Sizes):
    async def __call__(self, items):
        return super().__call__(items)


def expected(items):
    return [f"<{item}>" for item in items]


async def gather(runnable, items):
    return await asyncio.gather(*[runnable.ainvoke(item) for item in items], return_exceptions=True)


# ---- the scenes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "size", "seconds", "sizes"), [(10, 3, 0.5, [3, 3, 3, 1]), (5, 10, 0.1, [5])], ids=["full", "timer"]
)
def test_concurrent_calls_are_merged(calls, size, seconds, sizes):
    """Ten calls at size 3 make batches of 3, 3, 3 and 1, and five at size 10 one batch on the timer."""
    record = AsyncSizes()
    runnable = bk.RunnableBatch(batch_fn=record, max_batch_size=size, max_batch_time=seconds)
    assert virtual.run(gather(runnable, range(calls))) == expected(range(calls))
    assert record.sizes == sizes


@pytest.mark.parametrize("default", [{}, {"default_response": "n/a"}])
def test_a_processor_whose_batch_returns_exceptions(default):
    """Exception objects are failures, raised or replaced by the default response, and the others are unharmed."""

    class Processor:
        def batch(self, inputs):
            return [Boom(item) if item % 3 == 0 else item for item in inputs]

    results = asyncio.run(gather(bk.RunnableBatch(Processor(), max_batch_time=0.01, **default), range(5)))
    assert [results[1], results[2], results[4]] == [1, 2, 4]
    assert [type(results[0]), type(results[3])] == ([str, str] if default else [Boom, Boom])


def test_a_slow_processor_gets_a_batch_function_of_its_own():
    """`batch_fn` stands in for a bound object that can only do one at a time."""

    class Slow:
        def invoke(self, item):
            raise AssertionError("its batch_fn is there")

    record = Sizes()
    with bk.RunnableBatch(Slow(), batch_fn=record, max_batch_size=4, max_batch_time=60) as runnable:
        assert runnable.batch(list(range(8))) == expected(range(8))
    assert record.sizes == [4, 4]


# ---- ways to call ----------------------------------------------------------------------------------


def test_batch_keeps_the_order_of_its_inputs():
    """`batch` and `abatch` return outputs in the order of the inputs."""
    runnable = bk.RunnableBatch(batch_fn=Sizes(), max_batch_size=3, max_batch_time=0.01)
    assert runnable.batch(list("hello")) == expected("hello")
    assert asyncio.run(runnable.abatch(list("hello"))) == expected("hello")
    assert runnable.batch([]) == asyncio.run(runnable.abatch([])) == []


@pytest.mark.parametrize("is_async", [True, False])
def test_errors_are_raised_or_returned(is_async):
    """With `return_exceptions` errors stand in the list, without it the first in input order is raised."""
    runnable = bk.RunnableBatch(batch_fn=Sizes(fails=[1, 2]), max_batch_time=0.01)

    def batch(**kwargs):
        call = runnable.abatch if is_async else runnable.batch
        return asyncio.run(call([0, 1, 2], **kwargs)) if is_async else call([0, 1, 2], **kwargs)

    first, *rest = batch(return_exceptions=True)
    assert first == "<0>"
    assert [(type(error), error.args) for error in rest] == [(Boom, (1,)), (Boom, (2,))]
    with pytest.raises(Boom, match="1"):
        batch()


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_max_concurrency_limits_what_is_under_way(is_async, full):
    """`config={"max_concurrency": n}` has at most n inputs under way, and no batch waits for ever for more."""
    record = Sizes()
    runnable = bk.RunnableBatch(batch_fn=record, max_batch_time=0.005, wait_until_full=full)
    config = {"max_concurrency": 2}
    items = list(range(5))
    outputs = asyncio.run(runnable.abatch(items, config)) if is_async else runnable.batch(items, config)
    assert outputs == expected(items)
    assert max(record.sizes) <= 2


@pytest.mark.parametrize("is_async", [True, False])
def test_a_list_does_not_wait_for_others_to_fill_its_batch(is_async):
    """With `wait_until_full` the remainder of `batch` and `abatch` leaves when no more of their items can join."""
    record = Sizes()
    runnable = bk.RunnableBatch(batch_fn=record, max_batch_size=4, wait_until_full=True)
    items = list(range(10))
    assert (asyncio.run(runnable.abatch(items)) if is_async else runnable.batch(items)) == expected(items)
    assert record.sizes == [4, 4, 2]


def test_invoke_works_inside_a_running_loop():
    """Sync calls in a notebook's cell are answered, although its loop is running."""
    runnable = bk.RunnableBatch(batch_fn=Sizes(), max_batch_time=0.01)

    async def cell():
        return runnable.invoke(1), runnable.batch([2, 3])

    assert asyncio.run(cell()) == ("<1>", ["<2>", "<3>"])


def test_closing_answers_what_waits_and_refuses_more():
    """The end of `async with` sends the remainder; after it a call says that the collector is closed."""

    async def main():
        async with bk.RunnableBatch(batch_fn=AsyncSizes(), wait_until_full=True) as runnable:
            call = asyncio.create_task(runnable.ainvoke(1))
            await asyncio.sleep(0.01)
        assert await call == "<1>"
        with pytest.raises(bk.BatchkitError, match="closed"):
            await runnable.ainvoke(2)

    virtual.run(main())


def test_stats_and_repr_tell_what_was_done():
    """`.stats` counts calls and batches, and the repr says how many calls there were."""
    runnable = bk.RunnableBatch(batch_fn=Sizes(), max_batch_size=2, max_batch_time=60)
    runnable.batch([1, 2, 3, 4])
    assert (runnable.stats.calls, runnable.stats.answered, runnable.stats.batch_sizes) == (4, 4, (2, 2))
    assert repr(runnable) == "RunnableBatch(batch_fn, 4 calls)"


# ---- who processes ---------------------------------------------------------------------------------


class OnlyBatch:
    def batch(self, items):
        return [("batch", item) for item in items]


class AsyncBatch:
    async def abatch(self, items, *, return_exceptions):
        assert return_exceptions is True
        return [("abatch", item) for item in items]


class PlainInvoke:
    def invoke(self, item):
        return (threading.current_thread().name, item)


class AsyncInvoke:
    async def ainvoke(self, item):
        return ("ainvoke", item)


@pytest.mark.parametrize(
    ("bound", "how"),
    [(OnlyBatch, "batch"), (AsyncBatch, "abatch"), (PlainInvoke, "batchkit-function"), (AsyncInvoke, "ainvoke")],
)
def test_an_object_is_asked_the_best_way_it_has(bound, how):
    """An object with any of `abatch`, `batch`, `ainvoke` and `invoke` will do, given what it accepts and no more."""
    runnable = bk.RunnableBatch(bound(), max_batch_size=2, max_batch_time=60)
    assert runnable.batch([1, 2]) == [(how, 1), (how, 2)]


# ---- where it runs --------------------------------------------------------------------------------


class Bound:
    """A client that keeps connections: it works on the loop it was first used on, and no other."""

    def __init__(self):
        self.loop = None

    async def abatch(self, items, *, return_exceptions):
        loop = asyncio.get_running_loop()
        self.loop = self.loop or loop
        if loop is not self.loop:
            raise RuntimeError("<asyncio.locks.Event object> is bound to a different event loop")
        return expected(items)


def test_on_the_engines_loop_a_client_may_be_called_with_and_without_await():
    """With `loop="engine"` calls of every loop and of none reach a client that belongs to one loop."""
    runnable = bk.RunnableBatch(Bound(), max_batch_size=3, wait_until_full=True, loop="engine")

    async def cell():
        return await runnable.abatch(list(range(4))), runnable.batch(list(range(4)))

    for _ in range(2):
        assert asyncio.run(cell()) == (expected(range(4)), expected(range(4)))
    assert runnable.batch([1]) == ["<1>"]
    assert sorted(runnable.stats.batch_sizes) == [1, 1, 1, 1, 1, 3, 3, 3, 3]


def test_on_the_callers_loop_its_clients_go_on_working_and_errors_say_what_to_do():
    """By default awaited calls run on the caller's loop, and an error about loops names `loop="engine"`."""
    bound = Bound()
    runnable = bk.RunnableBatch(bound, max_batch_time=0.01)

    async def cell():
        await bound.abatch([0], return_exceptions=True)
        assert await runnable.ainvoke(1) == "<1>"
        with pytest.raises(RuntimeError, match="different event loop") as caught:
            runnable.invoke(1)
        return caught.value.__notes__

    (note,) = asyncio.run(cell())
    assert 'loop="engine"' in note


def test_a_caller_who_leaves_an_engines_batch_stops_it():
    """With `loop="engine"` a batch whose callers have all left is cancelled, and waiting ones are not sent."""
    begun, stopped = threading.Event(), threading.Event()

    async def slow(items):
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.set()
            raise

    runnable = bk.RunnableBatch(batch_fn=slow, max_batch_size=2, max_batch_time=60, loop="engine")

    async def main():
        calls = [asyncio.create_task(runnable.ainvoke(item)) for item in range(3)]
        await asyncio.to_thread(begun.wait, 30)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(main())
    assert stopped.wait(30)
    assert (runnable.stats.waiting, runnable.stats.running) == (0, 0)


# ---- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "needs something that processes"),
        ({"bound": object()}, "none of abatch, batch, ainvoke and invoke"),
        ({"batch_fn": 3}, "batch_fn=3"),
        ({"batch_fn": list, "on_batch": 3}, "on_batch=3"),
        ({"batch_fn": list, "max_batch_size": 0}, "max_batch_size=0"),
        ({"batch_fn": list, "max_batch_size": "big"}, "max_batch_size='big'"),
        ({"batch_fn": list, "max_batch_time": -1}, "max_batch_time=-1"),
        ({"batch_fn": list, "max_waiting": 0}, "max_waiting=0"),
        ({"batch_fn": list, "when_full": "drop"}, "when_full='drop'"),
        ({"batch_fn": list, "loop": "mine"}, "loop='mine'"),
        ({"batch_fn": list, "max_batchsize": 3}, "Did you mean 'max_batch_size'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said):
    """A wrong setting is a ConfigError that shows the value, an unknown one names the nearest."""
    with pytest.raises(bk.ConfigError) as caught:
        bk.RunnableBatch(**settings)
    assert said in str(caught.value)


@pytest.mark.parametrize("method", ["invoke", "batch", "ainvoke", "abatch"])
@pytest.mark.parametrize(
    ("config", "said"), [({"max_concurency": 3}, "Did you mean 'max_concurrency'"), ("fast", "is no dict")]
)
def test_unknown_config_keys_are_refused(method, config, said):
    """A key that no Runnable knows is an error, since a limit ignored in silence is no limit."""
    runnable = bk.RunnableBatch(batch_fn=list)
    given = [1] if method.endswith("batch") else 1
    configs = [config] if method.endswith("batch") and isinstance(config, str) else config

    async def call():
        result = getattr(runnable, method)(given, configs)
        return await result if method.startswith("a") else result

    with pytest.raises(bk.ConfigError) as caught:
        asyncio.run(call())
    assert said in str(caught.value)


@pytest.mark.parametrize("method", ["invoke", "batch"])
def test_keywords_that_a_batch_cannot_share_are_refused(method):
    """Keywords of single calls are an error that says to bind them."""
    with pytest.raises(bk.UnknownKeyword, match="Bind it"):
        getattr(bk.RunnableBatch(batch_fn=list), method)([1], stop=["x"])


def test_configs_must_fit_the_inputs():
    """A list of configs has one for each input."""
    with pytest.raises(bk.ConfigError, match="1 configs for 2 inputs"):
        bk.RunnableBatch(batch_fn=list).batch([1, 2], [{}])


# ---- without LangChain -----------------------------------------------------------------------------

WITHOUT = """
    import asyncio, sys

    sys.modules["langchain_core"] = None
    import batchkit as bk

    assert not hasattr(bk.RunnableBatch, "pipe")
    with bk.RunnableBatch(batch_fn=lambda items: [item * 2 for item in items], max_batch_time=0.01) as runnable:
        assert runnable.invoke(1, {"tags": ["x"]}) == 2
        assert runnable.batch([1, 2], {"max_concurrency": 1}) == [2, 4]
        assert asyncio.run(runnable.abatch([1, 2])) == [2, 4]
        try:
            runnable.invoke(1, {"tag": ["x"]})
        except bk.UnknownKeyword as error:
            assert "Did you mean 'tags'" in str(error)
        else:
            raise AssertionError
    for make in (lambda: bk.LangChain(object()), lambda: bk.Embedded().as_runnable()):
        try:
            make()
        except bk.ConfigError as error:
            assert "batchkit-notebook[langchain]" in str(error)
        else:
            raise AssertionError
"""


def test_everything_works_without_langchain():
    """Where langchain-core is missing the same class collects, and what needs it says what to install."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(WITHOUT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
