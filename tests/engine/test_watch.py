"""What takes too long is ended, and time for which the process stood still is nobody's."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual import run

from batchkit._engine.callers import FunctionCaller
from batchkit._engine.watch import watch_of_loop
from batchkit.records import Brief, Question

LOOKS = 0.5
"""Seconds between two looks: what may be counted too little at each standstill."""


def stand_still(seconds, *then):
    """Let time pass in which the loop does nothing; when it goes on, sockets are read before timers, as ``then`` is."""
    loop = asyncio.get_running_loop()
    loop._virtual.now += seconds
    for act in then:
        loop.call_soon(act)


async def timed(timeout, wait):
    """What ``wait`` brings, or TimeoutError, as callers use the watch."""
    watch = watch_of_loop()
    mine = watch.begin(timeout)
    try:
        return await wait
    except asyncio.CancelledError:
        if not watch.is_overdue(mine):
            raise
        raise TimeoutError from None
    finally:
        watch.end(mine)


async def ended(work):
    """How it ended, and when on the loop's clock."""
    try:
        result = await work
    except TimeoutError:
        result = "timeout"
    return result, asyncio.get_running_loop().time()


def test_what_takes_too_long_is_ended():
    """Each waits as long as it may, neither less nor more, whatever begins and ends beside it."""

    async def main():
        waits = [(60.0, 61.0), (3.0, 2.9), (7.25, 100.0), (0.1, 5.0)]
        return await asyncio.gather(*(ended(timed(time, asyncio.sleep(wait, "over"))) for time, wait in waits))

    assert run(main()) == [("timeout", 60.0), ("over", 2.9), ("timeout", 7.25), ("timeout", 0.1)]


@pytest.mark.parametrize("at", [1.0, 59.0, 59.99])
@pytest.mark.parametrize("stop", [1.6, 90.0, 40_000.0])
def test_what_arrived_while_the_process_stood_still_is_taken(at, stop):
    """A reply that came while the process was stopped is taken when it goes on, though its time is long over."""

    async def main():
        loop = asyncio.get_running_loop()
        reply = loop.create_future()
        loop.call_at(at, stand_still, stop, lambda: reply.set_result("reply"))
        return await ended(timed(60.0, reply))

    assert run(main()) == ("reply", at + stop)


@pytest.mark.parametrize("at", [1.0, 59.0])
def test_what_is_still_to_come_has_the_rest_of_its_time(at):
    """What was waited for before a standstill is waited for as long afterwards as was left, and not for ever."""

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_at(at, stand_still, 90.0)
        return await ended(timed(60.0, loop.create_future()))

    result, when = run(main())
    assert result == "timeout"
    assert 150.0 <= when <= 150.0 + LOOKS


def test_what_begins_after_a_standstill_gets_nothing_of_it():
    """A request that begins before anybody noticed that the process stood still has its own time and no more."""

    async def main():
        loop = asyncio.get_running_loop()
        begun = [asyncio.ensure_future(ended(timed(300.0, loop.create_future())))]

        def go_on():
            stand_still(90.0)
            begun.append(asyncio.ensure_future(ended(timed(5.0, loop.create_future()))))

        loop.call_at(1.2, go_on)
        await asyncio.sleep(100)
        return begun[1].result()

    assert run(main()) == ("timeout", 96.2)


@given(
    timeout=st.floats(0.1, 90),
    stops=st.lists(st.tuples(st.floats(0, 60), st.sampled_from([0.2, 0.9, 1.6, 90.0]) | st.floats(0, 200)), max_size=6),
)
def test_time_that_passed_is_counted(timeout, stops):
    """However often a process stands still, what never comes is given up once it was waited for as long as it may."""

    async def main():
        loop = asyncio.get_running_loop()
        for at, stop in stops:
            loop.call_at(at, stand_still, stop)
        _, when = await ended(timed(timeout, loop.create_future()))
        return when

    when = run(main())
    assert timeout - 1e-6 <= when <= timeout + sum(stop for _, stop in stops) + LOOKS * len(stops) + 1e-6


def test_nobody_looks_when_nothing_is_under_way():
    """Once all is over no timer is left, so an idle notebook is left alone."""

    async def main():
        await asyncio.gather(*(timed(60.0, asyncio.sleep(wait)) for wait in (1.0, 2.0)))
        await asyncio.sleep(1.0)
        return asyncio.get_running_loop()._scheduled

    assert run(main()) == []


def test_a_function_keeps_its_answer_too():
    """What a function has got by the time a stopped process goes on is its answer, and no time-out."""

    async def main():
        loop = asyncio.get_running_loop()
        reply = loop.create_future()

        async def function(prompt):
            return await reply

        caller = FunctionCaller(function, batched=False, batch=1, home=None)
        loop.call_at(10.0, stand_still, 90.0, lambda: reply.set_result("reply"))
        (result,) = await caller.carry([Question(Brief(""), "row")], 60.0)
        return result.reply.value

    assert run(main()) == "reply"
