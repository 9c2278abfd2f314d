"""Observers: functions of the user's that hear what happens in all runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from batchkit._engine.stream import Observer
from batchkit.errors import ConfigError
from batchkit.events import Event
from batchkit.settings import strict

__all__ = ["observe"]


@strict
def observe(fn: Callable[[Event], object]) -> Observer:
    """Call a function with every event of every run of this process, from now on.

    It is called in one thread of its own, with one event after the other, those of a run in the
    order in which they happened. Runs never wait for it: what it has not taken yet is kept in
    memory. Forked processes have no observers. While there is none, no event is made.

    Parameters
    ----------
    fn : callable
        Gets each event, a value of `batchkit.events`: ``Started``, ``Sent``, ``Attempted``,
        ``Settled``, ``Paused``, ``Adapted``, ``Stopped`` and ``Finished`` of runs, ``Batched`` of a
        `RunnableBatch`. If it raises, it is dropped with one `BatchkitWarning`, and the runs go on.

    Returns
    -------
    Observer
        ``.close()``, or the end of its ``with`` block, delivers what happened until then and stops.

    Raises
    ------
    ConfigError
        It is no function, or an async one.

    Examples
    --------
    >>> import pandas as pd, batchkit as bk
    >>> rules = bk.FunctionProvider(lambda text: "billing", name="rules")
    >>> df = pd.DataFrame({"text": ["I was charged twice"]})
    >>> heard = []
    >>> with bk.observe(heard.append):
    ...     out = df.llm.classify("text", ["billing", "other"], route=rules, progress=False)
    >>> [type(event).__name__ for event in heard]
    ['Started', 'Sent', 'Attempted', 'Settled', 'Finished']
    """
    if not callable(fn):
        raise ConfigError(f"observe needs a function that takes an event; got {fn!r}.")
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None)):  # noqa: B004
        raise ConfigError(
            f"observe: {fn!r} is async, and there is no loop in an observer's thread. Give a plain function, for "
            "example one that hands events to your loop with loop.call_soon_threadsafe(queue.put_nowait, event)."
        )
    return Observer(fn)
