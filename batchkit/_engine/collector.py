"""Single calls merged into batches: the core of `RunnableBatch`, for any code, with or without LangChain.

Calls of all threads and loops wait in one batch, for that is what "full" means to whoever makes them. A batch whose
callers share a loop runs on that loop: no other thread is woken, which keeps a call within microseconds, and clients
bound to the loop go on working. As soon as a second loop or a sync caller joins it, it moves to the engine's loop,
which no caller can close; with ``loop="engine"`` every batch runs there. A batch has one timer, on the loop it runs
on; nothing polls.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import copy
import inspect
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from batchkit import events
from batchkit._engine import bridge
from batchkit._engine.stream import STREAM
from batchkit._engine.threads import in_thread, tamed
from batchkit._logic.stats import quantile
from batchkit.errors import BatchkitError

__all__ = ["NOTHING", "BatchReport", "Collector", "CollectorStats", "Sent", "Spread"]

NOTHING: Final = type("Nothing", (), {"__repr__": lambda self: "<none>"})()
"""Stands for "no default response", since None may be one."""

_REMEMBERED = 4096
"""So many recent calls and batches are kept for `CollectorStats`."""

_Loop = asyncio.AbstractEventLoop
_Future = asyncio.Future[Any] | concurrent.futures.Future[Any]


# ---- what is told ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch that has ended, as ``on_batch`` gets it."""

    size: int
    waited: float
    """Seconds that its first item had waited when it left."""
    seconds: float
    """Seconds that it ran."""
    failed: int
    """Items without a result of their own, those that got the default response included."""
    error: str | None = None
    """What went wrong with all of it, if that did."""
    started: float = 0.0
    """When it left, in seconds since the epoch: with ``seconds`` a bar of a timeline."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds: the median, and what nine in ten and 99 in 100 stayed within. NaN where there is nothing yet."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Spread:
        """Measure how ``seconds`` spread."""
        values = np.fromiter(seconds, dtype=float)
        return cls(quantile(values, 0.5), quantile(values, 0.9), quantile(values, 0.99))


@dataclass(frozen=True, slots=True)
class CollectorStats:
    """What a collector has done so far. Sizes and seconds are those of the last 4,096 batches and calls."""

    calls: int
    """Calls that were made, refused ones not counted."""
    answered: int
    defaulted: int
    """Calls that failed and got the default response."""
    failed: int
    cancelled: int
    """Calls whose caller left before there was an answer."""
    refused: int
    """Calls that found the collector full with ``when_full="raise"``."""
    waiting: int
    """Calls whose batch has not left, now."""
    running: int
    """Batches under way, now."""
    batches: int
    """Batches that have ended."""
    batch_sizes: tuple[int, ...]
    """Of batches that have ended, in the order in which they left."""
    waiting_seconds: Spread
    """From a call to the departure of its batch."""
    running_seconds: Spread
    """From a batch's departure to its results."""
    max_batch_size: int
    """As it is now, where it is ``"auto"``."""
    max_batch_time: float


# ---- what adapts ----------------------------------------------------------------------------------


class _AutoSize:
    """The size beyond which an item gets no cheaper: doubled while that saves a tenth, halved where it does not.

    Only full batches count: in others the load decides how large they are.
    """

    _LEAST, _MOST, _FADES = 4, 1024, 50

    def __init__(self) -> None:
        self.value = 64
        self._costs: dict[int, float] = {}
        self._seen = 0

    def note(self, size: int, seconds: float, failed: bool) -> None:
        """Learn from a batch."""
        if size != self.value:
            return
        if failed:
            self.value = max(self._LEAST, self.value // 2)
            return
        cost = seconds / size
        self._costs[self.value] = (self._costs.get(self.value, cost) + cost) / 2
        self._seen += 1
        if self._seen % self._FADES == 0:  # what took long once may not any more
            self._costs = {self.value: self._costs[self.value]}
        self.value = self._better()

    def _better(self) -> int:
        own, up, down = self._costs[self.value], self.value * 2, self.value // 2
        if down in self._costs and own > 0.9 * self._costs[down]:
            return down
        if up <= self._MOST and (up not in self._costs or self._costs[up] < 0.9 * own):
            return up
        return self.value


class _AutoTime:
    """A quarter of what a batch takes, so that waiting adds little; next to nothing where no other call would come."""

    _LEAST, _MOST = 0.001, 1.0

    def __init__(self) -> None:
        self.value = 0.1
        self._running: float | None = None
        self._gap: float | None = None

    def note(self, seconds: float, size: int, span: float) -> None:
        """Learn from a batch that ran ``seconds`` and whose items came within ``span``."""
        self._running = seconds if self._running is None else 0.7 * self._running + 0.3 * seconds
        gap = span / (size - 1) if size > 1 else self.value
        self._gap = gap if self._gap is None else 0.7 * self._gap + 0.3 * gap
        worth = min(self._MOST, self._running / 4)
        # Where the next call is further away than that, waiting for it is in vain; so is one look in a while.
        self.value = max(self._LEAST, worth if self._gap <= 2 * worth else worth / 10)


# ---- who waits ------------------------------------------------------------------------------------


class _Call:
    """One caller, its item, and the future it waits for."""

    __slots__ = ("batch", "entered", "future", "hurried", "item", "loop")

    def __init__(self, item: Any, loop: _Loop, future: _Future, entered: float) -> None:
        self.item = item
        self.loop = loop
        """Where its batch runs if nobody else's loop is in it: the caller's, or the engine's for a sync one."""
        self.future = future
        self.entered = entered
        self.batch: _Batch | None = None
        self.hurried = False
        """Whether it was blocked when a flush was asked for, so that its batch is not to wait for others."""


class _Batch:
    """Calls that leave together."""

    __slots__ = (
        "calls", "done", "due", "gone", "home", "left", "mixed", "number", "started", "task", "timer", "wanted"
    )  # fmt: skip

    def __init__(self, home: _Loop, due: float | None) -> None:
        self.calls: dict[_Call, None] = {}
        self.home = home
        self.due = due
        """When its home's clock says so, it leaves; None: only when it is full or flushed."""
        self.mixed = False
        self.left = False
        self.number = 0
        """Counts up as batches leave."""
        self.gone = 0.0
        """When it left, on its home's clock."""
        self.started = 0.0
        """The same, in seconds since the epoch."""
        self.wanted = 0
        """How many still wait for it, once it has left."""
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.done: concurrent.futures.Future[None] = concurrent.futures.Future()


class Sent:
    """What `Collector.flush` sent: may be awaited, to wait until that is answered, or be ignored."""

    def __init__(self, done: concurrent.futures.Future[None] | None) -> None:
        self._done = done

    def __await__(self) -> Generator[Any, None, None]:
        if self._done is not None:
            yield from asyncio.shield(asyncio.wrap_future(self._done)).__await__()


class Collector:
    """Merges single calls into batches.

    Parameters
    ----------
    batch_fn : callable
        Gets a list of items and returns a list of results in their order, an exception object being
        that item's failure. Async ones run on a loop, sync ones each in a thread.
    max_batch_size : int or "auto"
    max_batch_time : float or "auto"
        Seconds after its first item a batch leaves at the latest.
    wait_until_full : bool
        Let batches leave only when they are full or flushed.
    default_response : Any, optional
        What a caller gets whose item failed, in place of the error.
    max_waiting : int, optional
        The most calls without an answer at once.
    when_full : {"wait", "raise"}
        What happens to further callers then: they wait, first come first served, or are refused.
    on_batch : callable, optional
        Called with a `BatchReport` after each batch, on the loop it ran on.
    loop : {"caller", "engine"}
        Whether a batch may run on a loop of its callers.
    name : str
        How observers of events know it.
    """

    def __init__(
        self,
        batch_fn: Callable[[list[Any]], Any],
        *,
        max_batch_size: int | Literal["auto"] = 64,
        max_batch_time: float | Literal["auto"] = 0.1,
        wait_until_full: bool = False,
        default_response: Any = NOTHING,
        max_waiting: int | None = None,
        when_full: Literal["wait", "raise"] = "wait",
        on_batch: Callable[[BatchReport], object] | None = None,
        loop: Literal["caller", "engine"] = "caller",
        name: str = "RunnableBatch",
    ) -> None:
        self._on_engine = loop == "engine"
        self._name = name
        self._batch_fn = batch_fn
        self._is_async = inspect.iscoroutinefunction(batch_fn) or inspect.iscoroutinefunction(
            getattr(batch_fn, "__call__", None)  # noqa: B004
        )
        self._auto_size = _AutoSize() if max_batch_size == "auto" else None
        self._auto_time = _AutoTime() if max_batch_time == "auto" else None
        self._size = self._auto_size.value if max_batch_size == "auto" and self._auto_size else int(max_batch_size)
        self._time = self._auto_time.value if max_batch_time == "auto" and self._auto_time else float(max_batch_time)
        self._most = max_waiting
        # A batch that nobody else may join is full.
        self._size = min(self._size, max_waiting or self._size)
        self._wait_until_full = wait_until_full
        self._default = default_response
        self._refuses = when_full == "raise"
        self._on_batch = on_batch
        # Batches run in the context the collector was made in, not in that of the caller who happens to fill one.
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._batch: _Batch | None = None
        """The one that takes calls."""
        self._running: set[_Batch] = set()
        self._blocked: dict[_Call, None] = {}
        """Callers for whom there is no room yet."""
        self._open = 0
        """Calls taken and not answered."""
        self._closed = False
        self._counts = dict.fromkeys(("answered", "defaulted", "failed", "cancelled", "refused", "batches"), 0)
        self._departed = 0
        """Batches that have left."""
        self._sizes: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        """Number and size of batches, as they ended."""
        self._waits: deque[float] = deque(maxlen=_REMEMBERED)
        self._runs: deque[float] = deque(maxlen=_REMEMBERED)
        _collectors.add(self)

    # ---- callers ----------------------------------------------------------------------------------

    async def submit(self, item: Any) -> Any:
        """Hand in an item and wait for its result; raises what it failed with."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        call = _Call(item, loop, future, loop.time())
        self._enter(call, loop)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._withdraw(call)
            raise

    def start(self, item: Any) -> concurrent.futures.Future[Any]:
        """Hand in an item from sync code, and get the future of its result."""
        return self._start_sync(item)[0]

    def call(self, item: Any) -> Any:
        """Hand in an item from sync code and wait for its result, whatever runs in this thread."""
        future, call = self._start_sync(item)
        try:
            return wait_for(future)
        except BaseException:
            if future.cancel():
                self._withdraw(call)
            raise

    def flush(self) -> Sent:
        """Let what waits leave now, full or not. The result may be awaited or ignored."""
        here = _running_loop()
        with self._lock:
            for call in self._blocked:
                call.hurried = True
            batch = self._batch
            ready = self._depart(batch, here) if batch is not None else False
        if batch is None or not ready:
            return Sent(None)
        self._launch(batch, here)
        return Sent(batch.done)

    async def aclose(self) -> None:
        """Take no more calls, let what waits leave, and wait until all is answered."""
        self._close()
        while pending := self._pending():
            await asyncio.wait([asyncio.wrap_future(batch.done) for batch in pending])

    def close(self) -> None:
        """The same from sync code. Batches on the loop of this very thread end when that runs again."""
        self._close()
        here = _running_loop()
        while pending := [batch.done for batch in self._pending() if batch.home is not here]:
            concurrent.futures.wait(pending)

    def stats(self) -> CollectorStats:
        """What was done so far."""
        with self._lock:
            counts = dict(self._counts)
            ended = sum(counts[name] for name in ("answered", "defaulted", "failed", "cancelled"))
            calls = ended + self._open + len(self._blocked)
            waiting = len(self._blocked) + (len(self._batch.calls) if self._batch is not None else 0)
            running, sizes = len(self._running), sorted(self._sizes)
            waits, runs = list(self._waits), list(self._runs)
        return CollectorStats(
            calls=calls,
            **counts,
            waiting=waiting,
            running=running,
            batch_sizes=tuple(size for _, size in sizes),
            waiting_seconds=Spread.of(waits),
            running_seconds=Spread.of(runs),
            max_batch_size=self._size,
            max_batch_time=self._time,
        )

    # ---- waiting: under the lock, which is never held while anything of a caller's runs -------------------

    def _start_sync(self, item: Any) -> tuple[concurrent.futures.Future[Any], _Call]:
        engine = bridge.loop()
        here = _running_loop()
        if here is engine:
            raise BatchkitError(
                "a sync call was made on the engine's own loop, which would wait for itself. "
                "Await the async one there, or make the function that calls a plain def."
            )
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        call = _Call(item, engine, future, time.monotonic())
        self._enter(call, here, may_block=here is None)
        return future, call

    def _enter(self, call: _Call, here: _Loop | None, *, may_block: bool = True) -> None:
        with self._lock:
            if self._closed:
                raise BatchkitError("this collector is closed and takes no more calls. Make a new one.")
            if self._most is not None and not self._has_room():
                if self._refuses or not may_block:
                    self._counts["refused"] += 1
                    raise BatchkitError(_full(self._most, self._refuses))
                self._blocked[call] = None
                return
            self._open += 1
            full = self._add(call, here)
        if full is not None:
            self._launch(full, here)

    def _has_room(self) -> bool:
        if self._most is None:
            return True
        if self._open >= self._most:
            for batch in [batch for batch in self._running if batch.home.is_closed()]:
                self._forget(batch)
        return self._open < self._most and not self._blocked

    def _add(self, call: _Call, here: _Loop | None) -> _Batch | None:
        """Put a call into the waiting batch; returns that if it leaves now."""
        batch = self._batch
        if batch is not None and call.loop is not batch.home and not batch.mixed:
            batch = self._move(batch)
        if batch is None:
            due = None if self._wait_until_full else call.entered + self._time
            batch = self._batch = _Batch(bridge.loop() if self._on_engine else call.loop, due)
            batch.mixed = self._on_engine
            self._set_timer(batch, here)
        batch.calls[call] = None
        call.batch = batch
        if len(batch.calls) >= self._size:
            return batch if self._depart(batch, here, only_full=True) else None
        hurried = call.hurried and not any(other.hurried for other in self._blocked)
        return batch if hurried and self._depart(batch, here) else None

    def _move(self, batch: _Batch) -> _Batch | None:
        """Take the waiting batch, where calls of several loops meet, to the engine's loop; None if nobody is left."""
        self._drop_dead(batch)
        if not batch.calls:
            self._batch = None
            return None
        engine = bridge.loop()
        batch.mixed = True
        if batch.home is not engine:
            # Its old timer may ring as well: at the same time, and the second one finds nothing to do.
            batch.home = engine
            self._set_timer(batch, None)
        return batch

    def _drop_dead(self, batch: _Batch) -> None:
        """Drop calls that were cancelled or whose loop was closed: there is nobody to give a result to."""
        for call in [call for call in batch.calls if call.future.cancelled() or call.loop.is_closed()]:
            del batch.calls[call]
            self._open -= 1
            self._counts["cancelled"] += 1

    def _set_timer(self, batch: _Batch, here: _Loop | None) -> None:
        if batch.due is None:
            return
        if here is batch.home:
            batch.timer = batch.home.call_at(batch.due, self._ring, batch)
        else:
            with contextlib.suppress(RuntimeError):  # that loop is gone, and its callers with it
                batch.home.call_soon_threadsafe(self._set_timer_there, batch)

    def _set_timer_there(self, batch: _Batch) -> None:
        if not batch.left and batch.due is not None:
            batch.timer = batch.home.call_at(batch.due, self._ring, batch)

    def _ring(self, batch: _Batch) -> None:
        here = _running_loop()
        with self._lock:
            leaves = self._batch is batch and self._depart(batch, here)
        if leaves:
            self._launch(batch, here)

    def _depart(self, batch: _Batch, here: _Loop | None, *, only_full: bool = False) -> bool:
        """Let the waiting batch leave; False if there is nobody in it, or not enough after all."""
        self._drop_dead(batch)
        if only_full and len(batch.calls) < self._size:
            return False
        self._batch = None
        batch.left = True
        if batch.timer is not None and here is batch.home:
            batch.timer.cancel()
        if not batch.calls:
            return False
        batch.wanted = len(batch.calls)
        self._departed += 1
        batch.number = self._departed
        self._running.add(batch)
        return True

    def _withdraw(self, call: _Call) -> None:
        """Forget a caller who has left."""
        here = _running_loop()
        with self._lock:
            batch = call.batch
            ready: list[_Batch] = []
            stop = False
            if call in self._blocked:
                del self._blocked[call]
                self._counts["cancelled"] += 1
                last = call.hurried and not any(other.hurried for other in self._blocked)
                waiting = self._batch
                if last and waiting is not None and self._depart(waiting, here):
                    ready = [waiting]
            elif batch is None or call not in batch.calls:
                return
            elif batch.left:
                batch.wanted -= 1
                stop = batch.wanted == 0
            else:
                del batch.calls[call]
                self._open -= 1
                self._counts["cancelled"] += 1
                if not batch.calls:
                    self._depart(batch, here)
                ready = self._admit(here)
        for other in ready:
            self._launch(other, here)
        if stop and batch is not None and batch.task is not None:
            self._on_home(batch, here, batch.task.cancel)

    def _admit(self, here: _Loop | None) -> list[_Batch]:
        """Let callers in for whom there is room now; returns the batches that this filled."""
        ready: list[_Batch] = []
        while self._blocked and self._most is not None and self._open < self._most:
            call = next(iter(self._blocked))
            del self._blocked[call]
            if call.loop.is_closed():
                self._counts["cancelled"] += 1
                continue
            self._open += 1
            # It waits in a batch only from now on.
            call.entered = call.loop.time()
            full = self._add(call, here)
            if full is not None:
                ready.append(full)
        return ready

    def _close(self) -> None:
        with self._lock:
            self._closed = True
        self.flush()

    def _pending(self) -> list[_Batch]:
        """Batches under way on loops that run, so that they will end."""
        with self._lock:
            return [batch for batch in self._running if batch.home.is_running()]

    def _forget(self, batch: _Batch) -> None:
        self._running.discard(batch)
        self._open -= len(batch.calls)
        batch.calls.clear()

    # ---- running ------------------------------------------------------------------------------------

    def _on_home(self, batch: _Batch, here: _Loop | None, do: Callable[..., object], *args: Any) -> None:
        if here is batch.home:
            do(*args)
            return
        try:
            batch.home.call_soon_threadsafe(do, *args)
        except RuntimeError:  # closed: all its callers were of that loop
            self._end(batch, None, "its loop was closed", 0.0)

    def _launch(self, batch: _Batch, here: _Loop | None) -> None:
        self._on_home(batch, here, self._begin, batch)

    def _begin(self, batch: _Batch) -> None:
        if not batch.wanted:
            self._end(batch, None, "all its callers left", 0.0)
            return
        batch.task = batch.home.create_task(self._run(batch), context=self._context.copy())
        # A task that is cancelled before its first step never gets to its `finally`.
        batch.task.add_done_callback(lambda task: self._end(batch, None, "the batch was cancelled", 0.0))

    async def _run(self, batch: _Batch) -> None:
        calls = list(batch.calls)
        batch.gone, batch.started = batch.home.time(), time.time()
        outcomes: list[Any] | None = None
        error: str | None = None
        try:
            outcomes = _aligned(await self._process([call.item for call in calls]), len(calls))
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                error = "the batch was cancelled"
                raise
            outcomes, error = [_Failed(tamed(cancelled))] * len(calls), "CancelledError"
        except GeneratorExit:  # collected after its loop was closed under it
            error = "its loop was closed"
            raise
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            outcomes = [_Failed(_own(raised, first=position == 0)) for position in range(len(calls))]
            # Ctrl-C on the caller's loop is the caller's; the engine's loop lives on.
            if not isinstance(raised, Exception) and batch.home is not bridge.loop():
                raise
        finally:
            self._end(batch, outcomes, error, batch.home.time() - batch.gone)

    async def _process(self, items: list[Any]) -> Any:
        if self._is_async:
            return await self._batch_fn(items)
        result = await in_thread(self._batch_fn, items)
        return await result if inspect.isawaitable(result) else result

    def _end(self, batch: _Batch, outcomes: list[Any] | None, error: str | None, seconds: float) -> None:
        if batch.done.done():
            return
        calls = list(batch.calls)
        failed = self._count(batch, calls, outcomes, error, seconds)
        self._settle(batch, calls, outcomes)
        with self._lock:
            self._forget(batch)
            ready = self._admit(_running_loop())
        batch.done.set_result(None)
        here = _running_loop()
        for other in ready:
            self._launch(other, here)
        if self._on_batch is None and not STREAM.feeds:
            return
        waited = max(0.0, batch.gone - calls[0].entered)
        report = BatchReport(len(calls), waited, seconds, failed, error, batch.started or time.time())
        if STREAM.feeds:
            told = (report.size, report.waited, report.seconds, report.failed, report.error)
            STREAM.tell(events.Batched(self._name, time.time(), *told))
        self._report(batch.home, report)

    def _count(
        self, batch: _Batch, calls: Sequence[_Call], outcomes: list[Any] | None, error: str | None, seconds: float
    ) -> int:
        failed = len(calls) if outcomes is None else sum(type(outcome) is _Failed for outcome in outcomes)
        with self._lock:
            counts = self._counts
            counts["batches"] += 1
            lost = sum(call.future.cancelled() for call in calls) if outcomes is not None else len(calls)
            counts["cancelled"] += lost
            if outcomes is not None:
                kept = [o for call, o in zip(calls, outcomes, strict=True) if lost == 0 or not call.future.cancelled()]
                bad = sum(type(outcome) is _Failed for outcome in kept)
                counts["answered"] += len(kept) - bad
                counts["failed" if self._default is NOTHING else "defaulted"] += bad
            self._sizes.append((batch.number, len(calls)))
            self._runs.append(seconds)
            self._waits.extend([max(0.0, batch.gone - call.entered) for call in calls])
            if self._auto_size is not None:
                self._auto_size.note(len(calls), seconds, error is not None)
                self._size = min(self._auto_size.value, self._most or self._auto_size.value)
            if self._auto_time is not None:
                self._auto_time.note(seconds, len(calls), calls[-1].entered - calls[0].entered)
                self._time = self._auto_time.value
        return failed

    def _settle(self, batch: _Batch, calls: list[_Call], outcomes: list[Any] | None) -> None:
        """Give every caller what came of its item: those of other loops by way of these."""
        home, default = batch.home, self._default
        closed = home.is_closed()
        elsewhere: dict[_Loop, list[tuple[_Future, Any]]] = {}
        for call, outcome in zip(calls, outcomes or [_Gone] * len(calls), strict=True):
            if type(outcome) is _Failed and default is not NOTHING:
                outcome = default
            if call.loop is home and not closed:
                _give(call.future, outcome)
            elif not call.loop.is_closed():
                elsewhere.setdefault(call.loop, []).append((call.future, outcome))
        for loop, pairs in elsewhere.items():
            with contextlib.suppress(RuntimeError):  # closed meanwhile: nobody is there any more
                loop.call_soon_threadsafe(_give_all, pairs)

    def _report(self, loop: _Loop, report: BatchReport) -> None:
        if self._on_batch is None:
            return
        try:
            self._on_batch(report)
        except Exception as error:  # noqa: BLE001
            loop.call_exception_handler(
                {"message": "on_batch raised; the batch was answered all the same", "exception": error}
            )

    def _after_fork(self) -> None:
        """Let callers of before the fork know: their batches went on in the parent, and the lock may have been held."""
        batches = [*self._running, *([self._batch] if self._batch is not None else [])]
        calls = [call for batch in batches for call in batch.calls] + list(self._blocked)
        self._lock = threading.Lock()
        self._batch, self._running, self._blocked, self._open = None, set(), {}, 0
        for batch in batches:
            batch.left = True
            batch.calls = {}
        for call in calls:
            # Threads did not come along, and so no sync callers.
            if isinstance(call.future, asyncio.Future) and not call.loop.is_closed() and not call.future.done():
                call.future.set_exception(
                    BatchkitError("the process was forked while this call waited; it is answered in the parent only.")
                )
                call.future.exception()  # nobody may be there to ask for it, which is no fault to be logged


# ---- outcomes --------------------------------------------------------------------------------------


class _Failed:
    """An item's failure, told from an exception that is a result."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Gone:
    """No outcome: the batch was cancelled."""


def _aligned(results: Any, count: int) -> list[Any]:
    """A result per item, or an error that says how many came back."""
    if isinstance(results, (str, bytes, Mapping, set, frozenset)) or not isinstance(results, Iterable):
        raise BatchkitError(
            f"the batch function returned {type(results).__name__}, not a list with one result for each of "
            f"{count} items. Return a list in the order of the items."
        )
    found = list(results)
    if len(found) != count:
        raise BatchkitError(
            f"the batch function returned {len(found)} results for {count} items, so nobody can tell whose they are. "
            "Return one for each item, in their order; an exception object stands for a failure."
        )
    return [_Failed(_raisable(result)) if isinstance(result, BaseException) else result for result in found]


def _raisable(error: BaseException) -> BaseException:
    # A future takes no StopIteration, and what ends a process must not come out of an await.
    return error if isinstance(error, Exception) and not isinstance(error, StopIteration) else tamed(error)


def _own(error: BaseException, *, first: bool) -> BaseException:
    """The error of a whole batch for one of its callers: an object of its own, since raising one writes into it."""
    error = _raisable(error)
    if first:
        return error
    try:
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001 - an exception that only its author can make
        return error
    if type(twin) is not type(error):
        return error
    twin.__cause__, twin.__suppress_context__ = error.__cause__, error.__suppress_context__
    return twin.with_traceback(error.__traceback__)


def _give(future: _Future, outcome: Any) -> None:
    if future.done():
        return
    if outcome is _Gone:
        future.set_exception(BatchkitError("the batch was cancelled before this call was answered."))
    elif type(outcome) is _Failed:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome)


def _give_all(pairs: Sequence[tuple[_Future, Any]]) -> None:
    for future, outcome in pairs:
        _give(future, outcome)


def _full(most: int, refuses: bool) -> str:
    if refuses:
        return f"{most} calls wait for their answers already (max_waiting={most}). Call again later."
    return (
        f"{most} calls wait for their answers already (max_waiting={most}), and waiting in sync code would keep this "
        "thread's running loop from answering them. Await the async call there."
    )


def _running_loop() -> _Loop | None:
    return asyncio._get_running_loop()


def wait_for(future: concurrent.futures.Future[Any]) -> Any:
    """Wait in sync code; in the main thread Ctrl-C gets through, on every system."""
    if threading.current_thread() is threading.main_thread():
        return bridge.wait(future, lambda: None)
    return future.result()


_collectors: weakref.WeakSet[Collector] = weakref.WeakSet()


def _after_fork() -> None:
    for collector in list(_collectors):
        collector._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
