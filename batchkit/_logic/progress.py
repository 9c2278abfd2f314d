"""The events of a run, and the fold that turns them into a snapshot which any view can draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from batchkit._logic.pricing import Tally
from batchkit.records import Failure

__all__ = [
    "Adapted",
    "Attempted",
    "Event",
    "Finished",
    "LaneSnapshot",
    "Paused",
    "Progress",
    "Sent",
    "Settled",
    "Snapshot",
    "Stopped",
]


class Sent(NamedTuple):
    """A request left."""

    lane: int
    at: float


class Attempted(NamedTuple):
    """A request ended. ``kind`` is None where it brought a completion, ``cost`` where that is unknown (USD)."""

    lane: int
    kind: str | None
    started: float
    ended: float
    tokens_in: int
    tokens_out: int
    cost: float | None = None


class Settled(NamedTuple):
    """A unit of work is done: ``rows`` rows now have their answer, or their error ``kind``."""

    lane: int
    rows: int
    kind: str | None
    reused: bool = False
    """Its answer was paid for before."""


class Paused(NamedTuple):
    """A provider asked us to wait until ``until``."""

    lane: int
    until: float


class Adapted(NamedTuple):
    """A model refused something about a request and is asked in another manner from here on."""

    lane: int
    how: str


class Stopped(NamedTuple):
    """A provider is asked no more in this run."""

    lane: int
    failure: Failure


class Finished(NamedTuple):
    """Nothing more will be sent. ``why`` is ``done``, ``cancelled``, ``interrupted`` or ``raised``."""

    why: str
    at: float


Event = Sent | Attempted | Settled | Paused | Adapted | Stopped | Finished


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """One provider's part of a run at one moment. Rows are rows of the frame, requests are requests."""

    name: str
    in_flight: int
    requests: int
    answered: int
    failed: int
    tokens_in: int
    tokens_out: int
    paused_until: float | None
    stopped: Failure | None
    adapted: tuple[str, ...] = ()
    """What the model refused, and how it is asked instead."""
    cost: float | None = 0.0
    """USD, as far as it is known; None: unknown."""
    cost_is_partial: bool = False
    """Some of its requests had no known cost."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment."""

    rows: int
    """Rows to be asked."""
    answered: int
    failed: int
    errors: Mapping[str, int]
    """Rows by error kind."""
    lanes: tuple[LaneSnapshot, ...]
    finished: str | None
    """None while the run goes on, else why it ended."""
    reused: int = 0
    """Of the answered rows, those whose answer was paid for before."""

    @property
    def done(self) -> int:
        """Rows that have their answer or their error."""
        return self.answered + self.failed


class Progress:
    """Folds events, one after the other; `snapshot` says where the run stands."""

    __slots__ = ("_answered", "_errors", "_finished", "_lanes", "_reused", "_rows")

    def __init__(self, rows: int, lanes: tuple[str, ...]) -> None:
        self._rows = rows
        self._answered = self._reused = 0
        self._errors: Counter[str] = Counter()
        self._lanes = [_Lane(name) for name in lanes]
        self._finished: str | None = None

    def fold(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case Sent(lane):
                self._lanes[lane].in_flight += 1
            case Attempted(lane, _, _, _, tokens_in, tokens_out, paid):
                tally = self._lanes[lane]
                tally.in_flight -= 1
                tally.requests += 1
                tally.tokens_in += tokens_in
                tally.tokens_out += tokens_out
                tally.cost.add(paid)
            case Settled(lane, rows, None, reused):
                self._answered += rows
                self._reused += rows if reused else 0
                self._lanes[lane].answered += rows
            case Settled(lane, rows, str(kind)):
                self._errors[kind] += rows
                self._lanes[lane].failed += rows
            case Paused(lane, until):
                self._lanes[lane].paused_until = until
            case Adapted(lane, how):
                self._lanes[lane].adapted[how] = None
            case Stopped(lane, failure):
                self._lanes[lane].stopped = failure
            case Finished(why):
                self._finished = why

    def snapshot(self) -> Snapshot:
        """Where the run stands now."""
        return Snapshot(
            self._rows,
            self._answered,
            sum(self._errors.values()),
            dict(self._errors),
            tuple(lane.snapshot() for lane in self._lanes),
            self._finished,
            self._reused,
        )


class _Lane:
    __slots__ = (
        "adapted",
        "answered",
        "cost",
        "failed",
        "in_flight",
        "name",
        "paused_until",
        "requests",
        "stopped",
        "tokens_in",
        "tokens_out",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight = self.requests = self.answered = self.failed = self.tokens_in = self.tokens_out = 0
        self.paused_until: float | None = None
        self.stopped: Failure | None = None
        self.adapted: dict[str, None] = {}
        self.cost = Tally()

    def snapshot(self) -> LaneSnapshot:
        return LaneSnapshot(
            self.name, self.in_flight, self.requests, self.answered, self.failed,
            self.tokens_in, self.tokens_out, self.paused_until, self.stopped, tuple(self.adapted),
            self.cost.usd, self.cost.is_partial,
        )  # fmt: skip
