"""The collector: every caller gets its own result, exactly once, in batches of the right size at the right time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import os
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._engine import bridge
from batchkit._engine.collector import Collector
from batchkit.errors import BatchkitError
from tests.engine import virtual

PATIENCE = 30


class Boom(Exception):
    pass


class Picky(Exception):
    """Cannot be copied: its constructor needs a keyword."""

    def __init__(self, text, *, code):
        super().__init__(text)
        self.code = code


class Recorder:
    """A batch function that notes what it got when, takes `seconds`, and fails on items it is told to."""

    def __init__(self, seconds=0.0, fails=()):
        self.seconds = seconds
        self.fails = set(fails)
        self.batches = []
        self.running = self.peak = 0

    async def __call__(self, items):
        loop = asyncio.get_running_loop()
        self.batches.append(SimpleNamespace(at=round(loop.time(), 6), items=list(items), loop=loop))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        return [Boom(item) if item in self.fails else f"<{item}>" for item in items]

    @property
    def sizes(self):
        return [len(batch.items) for batch in self.batches]

    @property
    def times(self):
        return [batch.at for batch in self.batches]


async def gather(collector, items):
    return await asyncio.gather(*[collector.submit(item) for item in items], return_exceptions=True)


def expected(items):
    return [f"<{item}>" for item in items]


# ---- when a batch leaves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "size", "seconds", "sizes", "times"),
    [
        (10, 3, 0.5, [3, 3, 3, 1], [0, 0, 0, 0.5]),
        (5, 10, 0.1, [5], [0.1]),
        (4, 1, 0.1, [1, 1, 1, 1], [0, 0, 0, 0]),
        (3, 10, 0.0, [3], [0]),
    ],
)
def test_a_batch_leaves_when_it_is_full_or_on_the_timer(calls, size, seconds, sizes, times):
    """Batches leave full at once, and what is left over when the time since its first item is up."""
    record = Recorder()
    collector = Collector(record, max_batch_size=size, max_batch_time=seconds)
    assert virtual.run(gather(collector, range(calls))) == expected(range(calls))
    assert record.sizes == sizes
    assert record.times == times


def test_the_time_counts_from_the_first_item():
    """Later calls do not put a batch off."""
    record = Recorder()
    collector = Collector(record, max_batch_size=10, max_batch_time=1.0)

    async def main():
        calls = []
        for item in range(3):
            calls.append(asyncio.create_task(collector.submit(item)))
            await asyncio.sleep(0.4)
        return await asyncio.gather(*calls)

    assert virtual.run(main()) == expected(range(3))
    assert record.times == [1.0]


def test_the_next_batch_leaves_while_the_last_one_runs():
    """Batches overlap: none waits for the one before it."""
    record = Recorder(seconds=10)
    collector = Collector(record, max_batch_size=2)
    assert virtual.run(gather(collector, range(6))) == expected(range(6))
    assert record.times == [0, 0, 0]
    assert record.peak == 3


def test_wait_until_full_leaves_only_full_or_flushed():
    """With `wait_until_full` no clock sends a batch; `flush` does, and may be awaited."""
    record = Recorder(seconds=1)
    collector = Collector(record, max_batch_size=3, max_batch_time=0.1, wait_until_full=True)

    async def main():
        calls = [asyncio.create_task(collector.submit(item)) for item in range(4)]
        await asyncio.sleep(100)
        assert record.sizes == [3]
        await collector.flush()
        assert [call.done() for call in calls] == [True] * 4
        collector.flush()

    virtual.run(main())
    assert record.sizes == [3, 1]


def test_auto_settings_adapt_to_what_batches_take():
    """With "auto", size grows while a larger batch costs no more, and the wait follows what a batch takes."""

    async def steady(items):
        await asyncio.sleep(2.0)
        return items

    async def main(collector):
        for start in range(0, 4096, 512):
            await gather(collector, range(start, start + 512))
        return collector.stats()

    stats = virtual.run(main(Collector(steady, max_batch_size="auto", max_batch_time="auto")))
    assert stats.max_batch_size > 64
    assert stats.max_batch_time == pytest.approx(0.5)


def test_auto_time_does_not_wait_for_calls_that_do_not_come():
    """With "auto", lone calls hardly wait."""
    collector = Collector(Recorder(seconds=0.004), max_batch_time="auto")

    async def main():
        for _ in range(50):
            await collector.submit("x")
            await asyncio.sleep(1)

    virtual.run(main())
    assert collector.stats().max_batch_time < 0.01


def test_auto_size_shrinks_where_large_batches_cost_more():
    """With "auto", size falls again where an item gets no cheaper."""

    async def quadratic(items):
        await asyncio.sleep(len(items) ** 2 / 1000)
        return items

    async def main(collector):
        for _ in range(12):
            await gather(collector, range(512))
        return collector.stats()

    assert virtual.run(main(Collector(quadratic, max_batch_size="auto"))).max_batch_size <= 64


# ---- what comes back -------------------------------------------------------------------------------


def test_results_go_home_whatever_order_batches_finish_in():
    """A later batch that is done earlier does not mix up results."""

    async def slower_first(items):
        await asyncio.sleep(10 - items[0])
        return [item * 10 for item in items]

    collector = Collector(slower_first, max_batch_size=2)
    assert virtual.run(gather(collector, range(8))) == [item * 10 for item in range(8)]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda items: items[1:], "returned 2 results for 3 items"),
        (lambda items: [*items, 1], "returned 4 results for 3 items"),
        (lambda items: None, "returned NoneType, not a list"),
        (lambda items: "abc", "returned str, not a list"),
        (lambda items: {1: 2}, "returned dict, not a list"),
        (lambda items: 7, "returned int, not a list"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
def test_a_list_that_does_not_fit_is_every_callers_error(returned, said, is_async):
    """Too few results, too many and no list at all are told to all callers, and nobody gets another's result."""

    async def later(items):
        return returned(items)

    collector = Collector(later if is_async else returned, max_batch_size=3)
    errors = asyncio.run(gather(collector, range(3)))
    assert {type(error) for error in errors} == {BatchkitError}
    assert all(said in str(error) for error in errors)
    assert len({id(error) for error in errors}) == 3


@pytest.mark.parametrize("results", [tuple, iter, lambda items: (item for item in items)])
def test_any_sequence_of_results_will_do(results):
    """A tuple or a generator is as good as a list."""
    collector = Collector(results, max_batch_size=3)
    assert asyncio.run(gather(collector, range(3))) == [0, 1, 2]


def test_a_raising_batch_function_is_every_callers_error():
    """When the batch function raises, each caller gets an exception object of its own."""

    async def broken(items):
        raise Boom("no luck") from ValueError("the cause")

    errors = virtual.run(gather(Collector(broken, max_batch_size=3), range(3)))
    assert [repr(error) for error in errors] == ["Boom('no luck')"] * 3
    assert len({id(error) for error in errors}) == 3
    assert all(isinstance(error.__cause__, ValueError) for error in errors)


def test_an_exception_that_cannot_be_copied_is_shared():
    """An exception that only its author can make reaches every caller all the same."""

    async def broken(items):
        raise Picky("no luck", code=7)

    errors = virtual.run(gather(Collector(broken, max_batch_size=2), range(2)))
    assert [(type(error), error.code) for error in errors] == [(Picky, 7)] * 2


def test_exception_objects_are_their_items_failures():
    """An exception in the list fails its own item alone."""
    record = Recorder(fails=[1])
    results = virtual.run(gather(Collector(record, max_batch_size=3), range(3)))
    assert [results[0], results[2]] == ["<0>", "<2>"]
    assert isinstance(results[1], Boom)


@pytest.mark.parametrize("error", [StopIteration("x"), KeyboardInterrupt("x"), GeneratorExit("x"), SystemExit(3)])
def test_exceptions_that_no_future_takes_are_told_as_text(error):
    """What would end a generator, a task or the process arrives as an ordinary error."""

    async def odd(items):
        return [error for _ in items]

    (result,) = virtual.run(gather(Collector(odd, max_batch_size=1), [0]))
    assert isinstance(result, RuntimeError)
    assert type(error).__name__ in str(result)


@pytest.mark.parametrize("default", [None, "n/a", Boom("as a value")])
def test_a_default_response_stands_in_for_failures(default):
    """With a default response failed items get that, be it None, whether one failed or the whole batch."""

    async def some(items):
        if "all" in items:
            raise Boom
        return [Boom() if item == "bad" else item for item in items]

    collector = Collector(some, max_batch_size=2, default_response=default)
    results = virtual.run(gather(collector, ["good", "bad", "all", "fine"]))
    assert results == ["good", default, default, default]
    stats = collector.stats()
    assert (stats.answered, stats.defaulted, stats.failed) == (1, 3, 0)


def test_a_cancellation_of_the_functions_own_is_an_error():
    """A batch function that raises CancelledError by itself does not cancel its callers."""

    async def odd(items):
        raise asyncio.CancelledError

    (result,) = virtual.run(gather(Collector(odd, max_batch_size=1), [0]))
    assert isinstance(result, RuntimeError)


# ---- callers who leave -----------------------------------------------------------------------------


def test_a_caller_who_leaves_is_not_asked_for():
    """A cancelled call's item is not in the batch, and the others get their own results."""
    record = Recorder()
    collector = Collector(record, max_batch_size=3, max_batch_time=1)

    async def main():
        calls = [asyncio.create_task(collector.submit(item)) for item in range(2)]
        await asyncio.sleep(0.1)
        calls[0].cancel()
        await asyncio.sleep(0.1)
        calls += [asyncio.create_task(collector.submit(item)) for item in (2, 3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, *rest = virtual.run(main())
    assert isinstance(first, asyncio.CancelledError)
    assert rest == expected([1, 2, 3])
    assert [batch.items for batch in record.batches] == [[1, 2, 3]]
    assert collector.stats().cancelled == 1


def test_a_batch_that_nobody_waits_for_any_more_ends():
    """When all callers of a batch have left, it is cancelled; with one left it goes on."""
    record = Recorder(seconds=100)
    collector = Collector(record, max_batch_size=2)

    async def main():
        calls = [asyncio.create_task(collector.submit(item)) for item in range(4)]
        await asyncio.sleep(1)
        for call in calls[:3]:
            call.cancel()
        await asyncio.sleep(1)
        assert record.running == 1
        return await calls[3]

    assert virtual.run(main()) == "<3>"
    assert collector.stats().running == 0


def test_no_empty_batch_leaves():
    """Where every caller has left before the timer rings, nothing is sent."""
    record = Recorder()
    collector = Collector(record, max_batch_time=1)

    async def main():
        call = asyncio.create_task(collector.submit(0))
        await asyncio.sleep(0.5)
        call.cancel()
        await asyncio.sleep(5)

    virtual.run(main())
    assert record.batches == []
    assert collector.stats().waiting == 0


# ---- back-pressure ----------------------------------------------------------------------------------


def test_further_callers_wait_in_the_order_they_came():
    """With `max_waiting` never more calls are open, and those outside are let in first come first served."""
    record = Recorder(seconds=1)
    collector = Collector(record, max_batch_size=2, max_waiting=4)
    assert virtual.run(gather(collector, range(10))) == expected(range(10))
    assert [batch.items for batch in record.batches] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert record.times == [0, 0, 1, 1, 2]
    assert record.peak == 2


def test_further_callers_are_refused():
    """With `when_full="raise"` they get an error that names the setting, and may call again later."""
    record = Recorder(seconds=1)
    collector = Collector(record, max_batch_size=2, max_waiting=2, when_full="raise")

    async def main():
        first = await gather(collector, range(3))
        return first, await collector.submit("again")

    (*good, refused), again = virtual.run(main())
    assert (*good, again) == ("<0>", "<1>", "<again>")
    assert isinstance(refused, BatchkitError)
    assert "max_waiting=2" in str(refused)
    assert collector.stats().refused == 1


def test_a_batch_that_nobody_else_may_join_is_full():
    """Where fewer may wait than fit into a batch, that many are a full batch."""
    record = Recorder()
    collector = Collector(record, max_batch_size=64, max_waiting=3, wait_until_full=True)
    assert virtual.run(gather(collector, range(6))) == expected(range(6))
    assert record.sizes == [3, 3]


def test_flush_counts_for_callers_outside_as_well():
    """Callers who wait for room when a flush is asked for leave as soon as they are in."""
    record = Recorder(seconds=1)
    collector = Collector(record, max_batch_size=3, max_waiting=3, wait_until_full=True)

    async def main():
        calls = [asyncio.create_task(collector.submit(item)) for item in range(5)]
        await asyncio.sleep(0.1)
        collector.flush()
        return await asyncio.gather(*calls)

    assert virtual.run(main()) == expected(range(5))
    assert record.sizes == [3, 2]


def test_a_caller_outside_who_leaves_gives_up_its_place():
    """A caller cancelled while waiting for room is never sent."""
    record = Recorder(seconds=1)
    collector = Collector(record, max_batch_size=1, max_waiting=1)

    async def main():
        calls = [asyncio.create_task(collector.submit(item)) for item in range(3)]
        await asyncio.sleep(0.1)
        calls[1].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    results = virtual.run(main())
    assert (results[0], results[2]) == ("<0>", "<2>")
    assert [batch.items for batch in record.batches] == [[0], [2]]


# ---- any arrivals, cancellations, failures ----------------------------------------------------------

ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 20),  # tenths of a second until the call
        st.one_of(st.none(), st.integers(0, 30)),  # tenths until its caller leaves, if it does
        st.booleans(),  # whether its item fails
    ),
    min_size=1,
    max_size=40,
)


@given(
    arrivals=ARRIVALS,
    size=st.integers(1, 6),
    tenths=st.integers(0, 10),
    seconds=st.sampled_from([0.0, 0.35, 2.0]),
    most=st.one_of(st.none(), st.integers(1, 8)),
    breaks=st.sets(st.integers(0, 5)),
)
def test_each_caller_gets_its_own_exactly_once(arrivals, size, tenths, seconds, most, breaks):
    """Whatever arrives, leaves and fails: own result or error, no batch over size, none late, none empty."""
    max_time = tenths / 10
    record = Recorder(seconds, fails=[item for item, (_, _, fails) in enumerate(arrivals) if fails])
    entered, outcomes, made = {}, {}, Counter()

    async def some_break(items):
        made["batch"] += 1
        if made["batch"] in breaks:
            record.batches.append(SimpleNamespace(at=asyncio.get_running_loop().time(), items=list(items)))
            raise Boom(tuple(items))
        return await record(items)

    collector = Collector(some_break, max_batch_size=size, max_batch_time=max_time, max_waiting=most)

    async def call(item, after, leaves):
        await asyncio.sleep(after / 10)
        entered[item] = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(None if leaves is None else leaves / 10 + 0.05):
                result = await collector.submit(item)
        except TimeoutError:
            result = "left"
        except Boom as error:
            result = error
        assert item not in outcomes
        outcomes[item] = result

    async def main():
        await asyncio.gather(*[call(item, after, leaves) for item, (after, leaves, _) in enumerate(arrivals)])
        await collector.aclose()

    virtual.run(main())
    assert sorted(outcomes) == list(range(len(arrivals)))
    for item, result in outcomes.items():
        leaves, fails = arrivals[item][1:]
        if result == "left":
            assert leaves is not None
        elif isinstance(result, Boom):
            (whose,) = result.args
            assert (fails and whose == item) or item in whose
        else:
            assert result == f"<{item}>"
    sent = Counter(item for batch in record.batches for item in batch.items)
    assert not sent or max(sent.values()) == 1
    assert all(1 <= len(batch.items) <= size for batch in record.batches)
    if most is None:
        for batch in record.batches:
            assert batch.at <= min(entered[item] for item in batch.items) + max_time + 1e-6
    stats = collector.stats()
    assert (stats.waiting, stats.running) == (0, 0)
    assert stats.calls == len(arrivals) == stats.answered + stats.failed + stats.cancelled


# ---- the end ---------------------------------------------------------------------------------------


def test_aclose_answers_what_waits_and_takes_no_more():
    """Closing sends the remainder, waits for what runs and for callers outside, and refuses further calls."""
    record = Recorder(seconds=1)
    collector = Collector(record, max_batch_size=2, max_waiting=3, wait_until_full=True)

    async def main():
        calls = [asyncio.create_task(collector.submit(item)) for item in range(6)]
        await asyncio.sleep(0.1)
        await collector.aclose()
        assert [call.result() for call in calls] == expected(range(6))
        with pytest.raises(BatchkitError, match="closed"):
            await collector.submit(7)

    virtual.run(main())


def test_an_ended_loop_leaves_nobody_behind():
    """When a loop ends in the middle, its callers and its batch are cancelled and the collector is free again."""
    record = Recorder(seconds=100)
    collector = Collector(record, max_batch_size=2)

    async def leave():
        calls = [asyncio.create_task(collector.submit(item)) for item in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return calls

    virtual.run(leave())
    record.seconds = 0
    assert virtual.run(gather(collector, range(2))) == expected(range(2))
    assert collector.stats().running == 0


# ---- threads and loops -------------------------------------------------------------------------------


def test_a_thousand_threads_call_at_once():
    """Sync calls of 1,000 threads are merged, and each thread gets its own result."""
    record = Recorder()
    collector = Collector(record, max_batch_size=64, max_batch_time=0.05)
    results = {}
    begin = threading.Barrier(1000)

    def call(item):
        begin.wait(PATIENCE)
        results[item] = collector.call(item)

    threads = [threading.Thread(target=call, args=(item,), daemon=True) for item in range(1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert results == {item: f"<{item}>" for item in range(1000)}
    assert max(record.sizes) <= 64
    assert len(record.sizes) < 500


def test_calls_of_several_loops_and_threads_fill_one_batch():
    """A batch is full when it has enough calls, wherever they come from, and runs on the engine's loop then."""
    record = Recorder()
    collector = Collector(record, max_batch_size=6, wait_until_full=True)

    def from_loop(item):
        return asyncio.run(gather(collector, [item, item + 1]))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        loops = [pool.submit(from_loop, item) for item in (0, 2)]
        calls = [pool.submit(collector.call, item) for item in (4, 5)]
        assert [future.result(PATIENCE) for future in loops] == [expected([0, 1]), expected([2, 3])]
        assert [future.result(PATIENCE) for future in calls] == expected([4, 5])
    assert record.sizes == [6]
    assert record.batches[0].loop is bridge.loop()


def test_callers_of_one_loop_stay_on_it():
    """A batch whose callers share a loop runs there, so that clients bound to that loop can be used."""
    record = Recorder()
    collector = Collector(record, max_batch_size=2)

    async def main():
        await gather(collector, range(2))
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert record.batches[0].loop is loop


def test_a_sync_call_inside_a_running_loop_is_answered():
    """A notebook's cell may call sync code while its own loop runs, even with calls of that loop waiting."""
    record = Recorder()
    collector = Collector(record, max_batch_size=2, wait_until_full=True)

    async def cell():
        waiting = asyncio.create_task(collector.submit("async"))
        await asyncio.sleep(0)
        return collector.call("sync"), await waiting

    assert asyncio.run(cell()) == ("<sync>", "<async>")


def test_a_sync_call_that_would_wait_for_its_own_loop_is_refused():
    """Where only this thread's loop could make room, sync code gets an error and does not hang."""
    collector = Collector(Recorder(seconds=0.01), max_batch_size=1, max_waiting=1)

    async def cell():
        waiting = asyncio.create_task(collector.submit(0))
        await asyncio.sleep(0)
        with pytest.raises(BatchkitError, match="Await the async call"):
            collector.call(1)
        return await waiting

    assert asyncio.run(cell()) == "<0>"


def test_a_sync_call_on_the_engines_loop_is_refused():
    """There it would wait for itself, and says so."""
    collector = Collector(Recorder())

    async def inside():
        collector.call(0)

    with pytest.raises(BatchkitError, match="engine's own loop"):
        bridge.submit(inside()).result(PATIENCE)


def turn(loop):
    loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.parametrize("joined_before", [0, 1])
def test_a_loop_closed_while_its_callers_wait_harms_nobody_else(joined_before):
    """Calls of a loop that was closed rudely are dropped, and those of others are answered without them."""
    record = Recorder()
    collector = Collector(record, max_batch_size=4, wait_until_full=True)
    loop = asyncio.new_event_loop()
    abandoned = [loop.create_task(collector.submit(item)) for item in ("gone", "lost")]
    turn(loop)
    calls = [collector.start(item) for item in range(joined_before)]
    loop.close()
    calls += [collector.start(item) for item in range(joined_before, 4)]
    assert [future.result(PATIENCE) for future in calls] == expected(range(4))
    assert record.sizes == [4]
    del abandoned
    gc.collect()


def test_room_held_by_a_closed_loop_is_given_back():
    """Calls under way on a loop that was closed rudely do not keep others out for ever."""
    record = Recorder(seconds=100)
    collector = Collector(record, max_batch_size=2, max_waiting=2)
    loop = asyncio.new_event_loop()
    abandoned = [loop.create_task(collector.submit(item)) for item in range(2)]
    turn(loop)
    turn(loop)
    assert record.sizes == [2]
    loop.close()
    record.seconds = 0
    assert asyncio.run(gather(collector, range(2))) == expected(range(2))
    del abandoned
    gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_leaves_the_child_a_working_collector():
    """In a forked child the collector works, and calls of before the fork get a clear error there."""
    record = Recorder()
    collector = Collector(record, max_batch_size=2, max_batch_time=0.01)
    collector.call("before")

    async def main():
        waiting = asyncio.create_task(collector.submit("inherited"))
        await asyncio.sleep(0)
        collector._lock.acquire()  # as another thread may have, at that moment
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert collector.call("in the child") == "<in the child>"
                with pytest.raises(BatchkitError, match="forked"):
                    await waiting
                status = 0
            finally:
                os._exit(status)
        collector._lock.release()
        assert await waiting == "<inherited>"
        return child

    child = asyncio.run(main())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- what is told ------------------------------------------------------------------------------------


def test_stats_tell_sizes_times_and_outcomes():
    """Stats have batch sizes, waiting and running times with their quantiles, and what came of the calls."""
    record = Recorder(seconds=2, fails=[1])
    collector = Collector(record, max_batch_size=4, max_batch_time=0.5)
    virtual.run(gather(collector, range(6)))
    stats = collector.stats()
    assert (stats.calls, stats.answered, stats.failed, stats.batches) == (6, 5, 1, 2)
    assert stats.batch_sizes == (4, 2)
    assert (stats.waiting_seconds.p50, stats.waiting_seconds.p99) == pytest.approx((0, 0.5))
    assert (stats.running_seconds.p50, stats.running_seconds.p90) == pytest.approx((2, 2))


def test_sizes_are_told_in_the_order_in_which_batches_left():
    """A batch that ends before an earlier one stands behind it in `batch_sizes`."""

    async def first_is_slow(items):
        await asyncio.sleep(10 if 0 in items else 1)
        return items

    collector = Collector(first_is_slow, max_batch_size=3, max_batch_time=0.1)

    async def main():
        calls = [asyncio.create_task(collector.submit(item)) for item in range(5)]
        await asyncio.sleep(5)
        before = collector.stats().batch_sizes
        await asyncio.gather(*calls)
        return before

    assert virtual.run(main()) == (2,)
    assert collector.stats().batch_sizes == (3, 2)


def test_stats_of_nothing_are_not_a_number():
    """Before the first batch there are no times to tell."""
    assert repr(Collector(Recorder()).stats().running_seconds) == "Spread(p50=nan, p90=nan, p99=nan)"


def test_a_hook_hears_of_every_batch():
    """`on_batch` gets a report of each batch, one that failed as a whole included."""
    reports = []

    async def some(items):
        if "bad" in items:
            raise Boom("no luck")
        return items

    collector = Collector(some, max_batch_size=2, max_batch_time=1, on_batch=reports.append)
    virtual.run(gather(collector, ["a", "bad", "c"]))
    told = [(report.size, report.waited, report.failed, report.error) for report in reports]
    assert told == [(2, 0, 2, "Boom: no luck"), (1, 1, 0, None)]


def test_a_report_says_when_its_batch_left():
    """`started` is seconds since the epoch, so that reports of several batches make a timeline."""
    reports, before = [], time.time()

    async def main():
        collector = Collector(Recorder(seconds=0.02), max_batch_size=1, on_batch=reports.append)
        await collector.submit("a")
        await collector.submit("b")

    asyncio.run(main())
    first, second = reports
    assert before <= first.started <= first.started + first.seconds <= second.started + 0.005
    assert second.started <= time.time()


def test_a_raising_hook_disturbs_nobody():
    """What a hook raises goes to the loop's exception handler, and callers get their results."""
    heard = []

    def broken(report):
        raise Boom

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context["exception"]))
        return await gather(Collector(Recorder(), max_batch_size=1, on_batch=broken), [0])

    assert virtual.run(main()) == ["<0>"]
    assert isinstance(heard[0], Boom)


def test_batches_do_not_run_in_a_callers_context():
    """A context variable that a caller has set is not seen by the batch, in which calls of others are as well."""
    variable = contextvars.ContextVar("variable", default="outside")

    async def look(items):
        return [variable.get() for _ in items]

    async def call(collector):
        variable.set("a caller's")
        return await collector.submit(0)

    async def main():
        collector = Collector(look, max_batch_size=2)
        return await asyncio.gather(call(collector), call(collector))

    assert virtual.run(main()) == ["outside", "outside"]


def test_a_sync_batch_function_runs_in_a_thread():
    """A plain function does not hold up the loop."""
    collector = Collector(lambda items: [threading.current_thread().name for _ in items], max_batch_size=1)
    assert asyncio.run(gather(collector, [0])) == ["batchkit-function"]
