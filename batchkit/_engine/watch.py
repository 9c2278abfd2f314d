"""Time-outs: one timer for all requests of a loop, since most are over long before their time."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Watch", "watch_of_loop"]

_OFTEN = 0.5
"""Seconds between two looks, as long as anything is under way."""
_LATE = 1.0
"""A look that comes so many seconds too late: the process stood still, or was kept from running."""


class Watch:
    """Cancels tasks whose request takes too long.

    Time for which the process stood still (stopped, suspended, or without the processor) does not
    count: what arrived meanwhile was paid for and is only to be read.
    """

    __slots__ = ("_at", "_ends", "_looked", "_overdue", "_timer")

    def __init__(self) -> None:
        self._ends: dict[asyncio.Task[Any], float] = {}
        self._overdue: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf
        """When to look next."""
        self._looked = 0.0

    def begin(self, timeout: float) -> asyncio.Task[Any]:
        """Cancel this task after ``timeout`` seconds, unless `end` comes first. Returns the task."""
        task = asyncio.current_task()
        assert task is not None
        now = asyncio.get_running_loop().time()
        if self._timer is None:
            self._looked = now
        elif now - self._at > _LATE:  # or what begins now would be given the time that is over
            self._look()
        end = self._ends[task] = now + timeout
        if end < self._at:
            self._look_at(min(end, now + _OFTEN))
        return task

    def end(self, task: asyncio.Task[Any]) -> None:
        """Let this task be, and take back its cancellation if that was the watch's doing."""
        del self._ends[task]
        if self._overdue and task in self._overdue:
            self._overdue.remove(task)
            task.uncancel()

    def is_overdue(self, task: asyncio.Task[Any]) -> bool:
        """Whether a cancellation that reached this task is the watch's doing and nobody else's. Asked before `end`."""
        return task in self._overdue and task.cancelling() == 1

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        stood_still = now - self._looked if now - self._at > _LATE else 0.0
        self._looked = now
        waiting = []
        for task, end in self._ends.items():
            if task in self._overdue:
                continue
            end += stood_still
            if end <= now:
                self._overdue.add(task)
                task.cancel()
            else:
                waiting.append((task, end))
        self._ends.update(waiting)
        if waiting:
            self._look_at(min(min(end for _, end in waiting), now + _OFTEN))
        else:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._at = None, math.inf


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = WeakKeyDictionary()


def watch_of_loop() -> Watch:
    """The running loop's watch."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = Watch()
    return watch
