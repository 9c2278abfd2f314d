"""The stream of events, and who hears it: each observer in a thread of its own, so that a slow one slows nobody."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from batchkit.errors import BatchkitWarning
from batchkit.events import Event

__all__ = ["STREAM", "Observer", "Stream", "close_all"]

_TICK = 0.2
"""Seconds between two looks at a thread: not every system wakes its main thread for Ctrl-C."""


class Stream:
    """Hands events on to those who listen. Whoever has one to tell looks first whether anybody does."""

    __slots__ = ("_lock", "feeds")

    def __init__(self) -> None:
        self.feeds: tuple[Callable[[Event], None], ...] = ()
        """Empty while nobody listens: then no event is made."""
        self._lock = threading.Lock()

    def tell(self, event: Event) -> None:
        """Hand an event to all who listen."""
        for feed in self.feeds:
            feed(event)

    def join(self, feed: Callable[[Event], None]) -> None:
        """Tell ``feed`` every event from now on; it must neither wait nor raise."""
        with self._lock:
            self.feeds = (*self.feeds, feed)

    def leave(self, feed: Callable[[Event], None]) -> None:
        """Tell ``feed`` nothing more."""
        with self._lock:
            self.feeds = tuple(other for other in self.feeds if other != feed)

    def forget(self) -> None:
        """Tell nobody anything more: the process was forked, and their threads are not here."""
        self._lock = threading.Lock()
        self.feeds = ()


STREAM = Stream()


class Observer:
    """Calls a function with every event, in one thread of its own: what `batchkit.observe` returns.

    Attributes
    ----------
    error : BaseException or None
        What the function raised; it hears nothing more then.
    """

    def __init__(self, fn: Callable[[Event], object]) -> None:
        self.error: BaseException | None = None
        self._fn = fn
        self._name = getattr(fn, "__qualname__", None) or repr(fn)
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self._feed = self._queue.put
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._listen, name="batchkit-observer", daemon=True)
        self._thread.start()
        _observers.append(self)
        STREAM.join(self._feed)

    def __repr__(self) -> str:
        state = "listens" if self._feed in STREAM.feeds else "closed" if self.error is None else "dropped"
        return f"<Observer {self._name}: {state}>"

    def close(self) -> None:
        """Deliver what happened until now, and stop. Returns when that is done; may be called twice."""
        self._close(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _close(self, patience: float | None) -> None:
        if self._pid != os.getpid():  # its thread is in the parent
            return
        STREAM.leave(self._feed)
        self._queue.put(None)
        with contextlib.suppress(ValueError):  # it is closed and dropped at once
            _observers.remove(self)
        until = None if patience is None else time.monotonic() + patience
        while self._thread.is_alive() and self._thread is not threading.current_thread():
            if until is not None and time.monotonic() >= until:
                return
            self._thread.join(_TICK)

    def _listen(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._fn(event)
            except BaseException as error:  # noqa: BLE001 - an observer never harms a run
                self._drop(error)
                return

    def _drop(self, error: BaseException) -> None:
        self.error = error
        STREAM.leave(self._feed)
        with contextlib.suppress(ValueError):  # it is closed and dropped at once
            _observers.remove(self)
        warnings.warn(
            f"the observer {self._name} failed and hears nothing more, and the runs go on: {error!r}",
            BatchkitWarning,
            stacklevel=1,
        )


_observers: list[Observer] = []


def close_all(patience: float) -> None:
    """Deliver what is pending before the process ends, for so many seconds at most."""
    until = time.monotonic() + patience
    for observer in _observers.copy():
        observer._close(max(0.0, until - time.monotonic()))


def _forget_after_fork() -> None:
    STREAM.forget()
    _observers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
