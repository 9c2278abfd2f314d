"""Runs that nobody waits for yet: a handle to see, take and stop them; and runs that are awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from batchkit._engine import bridge
from batchkit._logic.progress import Snapshot
from batchkit.errors import ConfigError
from batchkit.providers import resolve
from batchkit.routes import compile_route
from batchkit.runs.run import Launch, Run, ViewMaker

if TYPE_CHECKING:
    from batchkit.runs.terms import Asked

__all__ = ["Finished", "Job", "carry_out_async", "start"]

_TICK = 0.2
"""Seconds between two pictures of a run."""


class Finished(NamedTuple):
    """A row that is done, as `Job.as_completed` gives it."""

    row: int
    """Its position in the frame."""
    index: Any
    """Its label."""
    answer: Any
    """None where there is none."""
    error: str | None


class Job:
    """A run in the background: other cells can be used meanwhile.

    Attributes
    ----------
    run : Run
        Readable at any moment: ``job.run.frame``, ``.rows``, ``.requests``, ``.summary``.

    Examples
    --------
    >>> import pandas as pd, batchkit as bk
    >>> rules = bk.FunctionProvider(lambda text: "billing", name="rules")
    >>> job = pd.DataFrame({"text": ["I was charged twice"]}).llm.background.classify(
    ...     "text", ["billing", "other"], route=rules, progress=False
    ... )
    >>> job.result()["label"].tolist()
    ['billing']
    """

    def __init__(self, run: Run, done: concurrent.futures.Future[None], take: Callable[[Run], Any]) -> None:
        self.run = run
        self._done = done
        self._take = take

    def __repr__(self) -> str:
        return f"<Job {self.progress}>"

    @property
    def progress(self) -> Snapshot:
        """Counts of the moment."""
        return self.run.snapshot

    @property
    def done(self) -> bool:
        """Whether nothing goes on any more."""
        return self._done.done()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return what the verb returns.

        Interrupting the wait (the stop button, Ctrl-C) does not stop the job; `cancel` does.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most.

        Raises
        ------
        TimeoutError
            The job still goes on.
        RowFailed
            With ``on_error="raise"``.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._done.done():
            left = _TICK if until is None else min(_TICK, until - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"the job still goes on after {timeout:g} s: {self.run!r}")
            with contextlib.suppress(concurrent.futures.TimeoutError):
                self._done.result(timeout=left)
                break
        self._done.result()
        self.run.tell_news()
        self.run.raise_if_asked_to()
        return self._take(self.run)

    def partial(self) -> Any:
        """Return what the verb returns, as it stands now: finished rows, the others missing."""
        return self._take(self.run)

    def cancel(self) -> None:
        """Send nothing new; answers in flight get 2 s to arrive. `result` then returns what is done."""
        self.run.cancel()

    def as_completed(self) -> Iterator[Finished]:
        """Give each row once, soon after it is done, in the order in which rows are done.

        Yields
        ------
        Finished
            ``row`` (position), ``index`` (label), ``answer``, ``error``. Rows that are asked of
            nobody are left out.
        """
        seen = 0
        while True:
            over = self._done.done()
            new = self.run.settled(seen)
            seen += len(new)
            yield from (Finished(*row) for row in new)
            if over:
                return
            with contextlib.suppress(concurrent.futures.TimeoutError):
                self._done.result(timeout=_TICK)


def start(asked: Asked, view: ViewMaker | None, take: Callable[[Run], Any]) -> Job:
    """Start a run and come back at once; a thread of its own shows it and puts things away at the end."""
    compiled = compile_route(asked.route, asked.table, resolve)
    if any(provider.needs_home_loop for provider in compiled.providers):
        raise ConfigError(
            'a function with loop="caller" cannot be asked in the background: its loop would have to wait for it. '
            'Use loop="engine", or call the verb itself.'
        )
    launched = Launch(asked, compiled, view, None)
    try:
        future = launched.begin()
    except BaseException:
        launched.run.cancel()  # nobody would have a handle to it
        raise
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()
    threading.Thread(target=_attend, args=(launched, future, done), name="batchkit-job", daemon=True).start()
    return Job(launched.run, done, take)


def _attend(launched: Launch, future: concurrent.futures.Future[None], done: concurrent.futures.Future[None]) -> None:
    try:
        bridge.wait(future, launched.look)
        launched.end()
    except BaseException as error:  # noqa: BLE001 - whoever asks for the result is to see it
        done.set_exception(error)
    else:
        done.set_result(None)


async def carry_out_async(asked: Asked, view: ViewMaker | None) -> Run:
    """Carry out a run and await it, on any loop. Cancellation stops the run and stays ``CancelledError``."""
    compiled = compile_route(asked.route, asked.table, resolve)
    launched = Launch(asked, compiled, view, asyncio.get_running_loop())
    run = launched.run
    try:
        future = launched.begin()
        arrived = asyncio.wrap_future(future)
        while not future.done():
            # Awaiting it without a time-out would not wake this loop for an interrupt.
            await asyncio.wait([arrived], timeout=_TICK)
            launched.look()
    except asyncio.CancelledError:
        run.cancel()
        while not future.done():
            await asyncio.wait([arrived], timeout=_TICK)
        raise
    finally:
        await asyncio.to_thread(launched.end)
    future.result()
    run.tell_news()
    run.raise_if_asked_to()
    return run
