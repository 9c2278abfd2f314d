"""Time-outs: one timer for all requests of a loop, since most are over long before their time."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Timed", "Watch", "watch_of_loop"]

_OFTEN = 0.5
"""Seconds between two looks, as long as anything is under way."""
_LATE = 1.0
"""A look that comes so many seconds too late: the process stood still, or was kept from running."""


class Timed:
    """Something that must be over in time, from `Watch.begin` to `Watch.end`."""

    __slots__ = ("before", "end", "is_cancelled", "task")

    def __init__(self, task: asyncio.Task[Any], end: float) -> None:
        self.task = task
        self.end = end
        self.before = task.cancelling()
        self.is_cancelled = False
        """Whether the watch cancelled the task."""

    @property
    def is_overdue(self) -> bool:
        """Whether a cancellation that reached the task is the watch's doing and nobody else's. Asked before the end."""
        return self.is_cancelled and self.task.cancelling() == self.before + 1


class Watch:
    """Cancels what takes too long.

    Time for which the process stood still (stopped, suspended, or without the processor) does not
    count: what arrived meanwhile was paid for and is only to be read.
    """

    __slots__ = ("_at", "_looked", "_pending", "_timer")

    def __init__(self) -> None:
        self._pending: dict[Timed, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf
        """When to look next."""
        self._looked = 0.0

    def begin(self, timeout: float) -> Timed:
        """Cancel this task after ``timeout`` seconds, unless `end` comes first."""
        task = asyncio.current_task()
        assert task is not None
        now = task.get_loop().time()
        if self._timer is None:
            self._looked = now
        elif now - self._at > _LATE:  # or what begins now would be given the time that is over
            self._look()
        timed = Timed(task, now + timeout)
        self._pending[timed] = None
        self._look_at(min(timed.end, now + _OFTEN))
        return timed

    def end(self, timed: Timed) -> None:
        """Let the task be, and take back its cancellation if that was the watch's doing."""
        del self._pending[timed]
        if timed.is_cancelled:
            timed.task.uncancel()

    def _look_at(self, at: float) -> None:
        if at < self._at:
            if self._timer is not None:
                self._timer.cancel()
            self._at = at
            self._timer = asyncio.get_running_loop().call_at(at, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._at > _LATE:
            for timed in self._pending:
                timed.end += now - self._looked
        self._looked = now
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at = None, math.inf
        soonest = math.inf
        for timed in self._pending:
            if timed.is_cancelled:
                continue
            if timed.end <= now:
                timed.is_cancelled = True
                timed.task.cancel()
            else:
                soonest = min(soonest, timed.end)
        if soonest < math.inf:
            self._look_at(min(soonest, now + _OFTEN))


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = WeakKeyDictionary()


def watch_of_loop() -> Watch:
    """The running loop's watch."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = Watch()
    return watch
