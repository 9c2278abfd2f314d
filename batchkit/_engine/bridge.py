"""The one event loop, in one daemon thread, and how other threads talk to it.

Sync calls wait for it, so it makes no difference whether the caller's thread runs a loop of its
own (a notebook's kernel), which one, or none.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from batchkit._engine.stream import close_all
from batchkit.errors import BatchkitError, ConfigError

__all__ = ["at_exit", "call", "fulfil", "home_loop", "is_of_another_loop", "loop", "refuse_inside", "submit", "wait"]

T = TypeVar("T")

_ANOTHER_LOOP = re.compile(r"different (?:event )?loop|event loop is closed", re.IGNORECASE)

_TICK = 0.2
"""Seconds between two looks at a run: short enough for Ctrl-C, and five pictures a second."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_tasks: set[asyncio.Task[Any]] = set()
_closers: list[Callable[[], Awaitable[None]]] = []


def loop() -> asyncio.AbstractEventLoop:
    """The engine's loop; started at first use."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = _new_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="batchkit-engine", daemon=True)
            _thread.start()
        return _loop


def _new_loop() -> asyncio.AbstractEventLoop:
    """One of uvloop where that is installed: a request then costs less."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    # Its own clock knows milliseconds only, and on macOS counts the time asleep, unlike Python's.
    made: asyncio.AbstractEventLoop = type("Loop", (uvloop.Loop,), {"time": staticmethod(time.monotonic)})()
    return made


def at_exit(close: Callable[[], Awaitable[None]]) -> None:
    """Have ``close`` awaited on the loop before the process ends."""
    _closers.append(close)


def submit(coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Start a coroutine on the engine's loop."""
    try:
        refuse_inside()
    except BatchkitError:
        coroutine.close()
        raise
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    call(fulfil, coroutine, future)
    return future


def refuse_inside() -> None:
    """Raise in the engine's own thread, which cannot wait for itself."""
    if threading.current_thread() is _thread:
        raise BatchkitError(
            "a run was started from inside the engine, probably by an async function given to FunctionProvider. "
            "Make that function a plain def: it then runs in a thread of its own and may start runs."
        )


def fulfil(coroutine: Coroutine[Any, Any, T], future: concurrent.futures.Future[T]) -> None:
    """Carry a coroutine out and put into ``future`` what comes of it. Called on the engine's loop."""

    def arrived(task: asyncio.Task[T]) -> None:
        _tasks.discard(task)
        if task.cancelled():
            future.cancel()
            future.set_running_or_notify_cancel()
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    task = asyncio.get_running_loop().create_task(coroutine)
    _tasks.add(task)
    task.add_done_callback(arrived)


def call(function: Callable[..., object], *args: Any) -> None:
    """Call a function on the engine's loop, soon."""
    loop().call_soon_threadsafe(function, *args)


def wait(
    future: concurrent.futures.Future[T], on_tick: Callable[[], None], home: asyncio.AbstractEventLoop | None = None
) -> T:
    """Wait for a result; a KeyboardInterrupt gets through within a tick, on every system.

    With ``home``, the caller's own loop, that loop runs meanwhile.
    """
    if home is not None:
        return _wait_at_home(future, on_tick, home)
    # A bare lock: an interrupt inside a condition's own code leaves it locked, and the engine waits for it forever.
    arrived = threading.Lock()
    arrived.acquire()
    future.add_done_callback(lambda _: arrived.release())
    while not arrived.acquire(timeout=_TICK):
        on_tick()
    return future.result()


def is_of_another_loop(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, says that something belongs to another event loop than the one it met."""
    for _ in range(5):
        if isinstance(error, RuntimeError) and _ANOTHER_LOOP.search(str(error)):
            return True
        error = None if error is None else error.__cause__
    return False


# ---- work that must run on the caller's own loop ------------------------------------------------


@contextlib.contextmanager
def home_loop(needed: bool) -> Iterator[asyncio.AbstractEventLoop | None]:
    """The loop of the calling thread, made able to run nested if it is running already; None where not needed.

    Only for callables that must run there: this is the one place where a running loop is patched.
    """
    if not needed:
        yield None
        return
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        own = asyncio.new_event_loop()
        try:
            yield own
        finally:
            own.run_until_complete(_cancel_rest())
            own.run_until_complete(own.shutdown_asyncgens())
            own.close()
        return
    if not isinstance(running, asyncio.BaseEventLoop):
        raise ConfigError(
            f'loop="caller" cannot work on a {type(running).__module__} loop, which cannot run nested. '
            'Use loop="engine", or call from a thread without a running loop.'
        )
    try:
        import nest_asyncio
    except ImportError:  # Python 3.14 and later, where the original breaks aiohttp
        import nest_asyncio2 as nest_asyncio
    nest_asyncio.apply(running)
    yield running


def _wait_at_home(
    future: concurrent.futures.Future[T], on_tick: Callable[[], None], home: asyncio.AbstractEventLoop
) -> T:
    looked = time.monotonic()
    while not future.done():
        # Short turns, since not every system wakes a loop for an interrupt; and no coroutine, which one would tear.
        turn = home.create_future()
        timer = home.call_later(0.01, turn.set_result, None)
        try:
            home.run_until_complete(turn)
        finally:
            timer.cancel()
        if time.monotonic() - looked >= _TICK:
            looked = time.monotonic()
            on_tick()
    return future.result()


# ---- the end ------------------------------------------------------------------------------------


async def _cancel_rest() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1)


async def _close_all() -> None:
    await _cancel_rest()
    for close in _closers:
        await close()


@atexit.register
def _shut_down() -> None:
    _stop_loop()
    close_all(2.0)  # only now: observers are to hear how the last runs ended


def _stop_loop() -> None:
    global _loop
    if _loop is None or _thread is None:
        return
    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(_close_all(), _loop).result(timeout=2)
    _loop.call_soon_threadsafe(_loop.stop)
    _thread.join(timeout=2)
    if not _loop.is_running():
        _loop.close()
    _loop = None


def _forget_after_fork() -> None:
    """Threads do not survive a fork: the child starts a loop of its own when it needs one."""
    global _loop, _thread, _lock
    _loop = _thread = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
