"""What `batchkit.observe` tells: frozen values, one kind for each thing that can happen.

Those of one run, which have its number in ``run``, come in the order in which they happened, from
`Started` to `Finished`. None holds the text of a cell, an answer or a key. ``at`` is seconds since
the epoch. A row is a position in the frame; of equal rows, which are asked about once, the first.
A ``provider.check()`` and a call of ``provider.as_runnable()`` are runs of one row.

Examples
--------
>>> from batchkit import events
>>> def note(event):
...     match event:
...         case events.Attempted(provider=provider, error=str(error)):
...             print(provider, "failed:", error)
...         case events.Paused(provider=provider, seconds=seconds):
...             print(provider, "is left alone for", seconds, "s")
>>> note(events.Paused(run=1, at=1.7e9, provider="fast", seconds=2.0))
fast is left alone for 2.0 s
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "Adapted",
    "Attempted",
    "Batched",
    "Event",
    "Finished",
    "Paused",
    "Sent",
    "Settled",
    "Started",
    "Stopped",
]


class Started(NamedTuple):
    """A run begins."""

    run: int
    """Counts up in the process; ``bk.last_run().number`` is the same."""
    at: float
    task: str
    """As the verb is called."""
    rows: int
    """Rows that are to be asked about."""
    providers: tuple[str, ...]


class Sent(NamedTuple):
    """A request leaves."""

    run: int
    at: float
    provider: str


class Attempted(NamedTuple):
    """A request ended, with a reply or without: what ``run.requests`` has a row for."""

    run: int
    at: float
    provider: str
    row: int
    seconds: float
    error: str | None
    """The kind of error; None where a reply came, whether or not it is an answer."""
    status: int | None
    """HTTP status of an error, where there was one."""
    tokens_in: int
    tokens_out: int
    cost: float | None
    """USD; None where it is unknown."""
    model: str | None
    request_id: str | None
    message: str | None
    """What an error says."""


class Settled(NamedTuple):
    """A row has its answer, or its error: so have those equal to it.

    Rows that a run which was stopped did not get to are not told one by one; see `Finished`.
    """

    run: int
    at: float
    provider: str
    """Who answered, or who was tried last."""
    row: int
    rows: int
    """How many rows this concerns."""
    error: str | None
    """The kind of error; None where there is an answer."""
    reused: bool
    """Its answer was paid for before."""
    message: str | None
    """What an error says."""


class Paused(NamedTuple):
    """A provider gets no new requests for so many seconds, since it asked for that or is overloaded."""

    run: int
    at: float
    provider: str
    seconds: float


class Adapted(NamedTuple):
    """A model refused something about a request and is asked in another manner from here on."""

    run: int
    at: float
    provider: str
    how: str


class Stopped(NamedTuple):
    """A provider is asked no more in this run."""

    run: int
    at: float
    provider: str
    error: str
    message: str


class Finished(NamedTuple):
    """A run ended: nothing more will be told of it."""

    run: int
    at: float
    why: str
    """``"done"``, ``"cancelled"``, ``"interrupted"``, ``"raised"``, ``"max_cost"`` or ``"max_seconds"``."""
    rows: int
    answered: int
    failed: int
    """The rest of the rows was not got to."""


class Batched(NamedTuple):
    """A batch of a `RunnableBatch` ended. It belongs to no run; what its ``on_batch`` hook gets."""

    collector: str
    """Its ``name``."""
    at: float
    size: int
    waited: float
    """Seconds that its first item had waited when it left."""
    seconds: float
    """Seconds that it ran."""
    failed: int
    """Items without a result of their own, those that got the default response included."""
    error: str | None
    """What went wrong with all of it, if that did."""


Event = Started | Sent | Attempted | Settled | Paused | Adapted | Stopped | Finished | Batched
"""Any of them."""
