"""The events of a run, and the fold that turns them into a snapshot which any view can draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp, ldexp
from typing import NamedTuple

from batchkit._logic.pricing import Tally
from batchkit.records import Failure, Limits

__all__ = [
    "Adapted",
    "Attempted",
    "Concurrency",
    "Event",
    "Finished",
    "Group",
    "Held",
    "LaneSnapshot",
    "Paused",
    "Progress",
    "Retrying",
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
    group: int = 0
    """Which of the run's groups of rows it belonged to."""
    message: str | None = None
    """What an error says."""


class Retrying(NamedTuple):
    """A provider failed on so many rows, and they are not given up; negative where that is over."""

    lane: int
    rows: int


class Paused(NamedTuple):
    """A provider asked us to wait until ``until``."""

    lane: int
    until: float


class Held(NamedTuple):
    """A limit lets no request go from ``at`` on, though rows wait; None: one has gone again."""

    lane: int
    by: str | None
    at: float


class Concurrency(NamedTuple):
    """So many requests may be in flight at a provider from here on."""

    lane: int
    slots: int


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


Event = Sent | Attempted | Settled | Retrying | Paused | Held | Concurrency | Adapted | Stopped | Finished


class Group(NamedTuple):
    """Rows that the same providers may be asked about."""

    lanes: frozenset[int]
    units: int
    """Different questions among them."""
    rows: int


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
    reused: int = 0
    """Of its answered rows, those whose answer was paid for before."""
    retrying: int = 0
    """Rows it failed on that are asked again."""
    open_rows: int = 0
    """Rows without an outcome that it may be asked about, it alone or with others."""
    open_units: int = 0
    """Different questions among these."""
    expected: float = 0.0
    """How many of its open rows it will probably settle: those it shares go by what each provider did so far."""
    p50: float | None = None
    """Seconds: half of its replies took less. None before the first."""
    p99: float | None = None
    held_by: str | None = None
    """The limit that lets no request go at this moment, though rows wait."""
    held: float = 0.0
    """Seconds for which limits let no request go."""
    slots: int | None = None
    """Requests that may be in flight now; None where that is not known."""

    def __repr__(self) -> str:
        stopped = "" if self.stopped is None else f", stopped: {self.stopped.kind}"
        return (
            f"<{self.name}: {self.answered:,} answered, {self.failed:,} failed, {self.in_flight:,} in flight{stopped}>"
        )

    @property
    def settled(self) -> int:
        """Rows that got their outcome from it in this run."""
        return self.answered - self.reused + self.failed


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
    duplicates: int = 0
    """Rows that share the question of another one."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """By error kind, what the first of them said."""
    now: float = 0.0
    """The moment, on the clock of the events."""
    elapsed: float = 0.0
    """Seconds since the run began."""

    def __repr__(self) -> str:
        return f"<Snapshot {self}>"

    def __str__(self) -> str:
        counts = f"{self.answered:,} of {self.rows:,} rows answered, {self.failed:,} failed"
        if self.finished is None:
            return f"running: {counts}, {sum(lane.in_flight for lane in self.lanes):,} in flight"
        left = self.rows - self.done
        return f"{self.finished}: {counts}" + (f", {left:,} {_LEFT.get(self.finished, 'cancelled')}" if left else "")

    @property
    def done(self) -> int:
        """Rows that have their answer or their error."""
        return self.answered + self.failed


_LEFT = {"max_cost": "over budget", "max_seconds": "over budget"}
"""What rows are called that an ended run did not get to."""


class Progress:
    """Folds events, one after the other; `snapshot` says where the run stands.

    Parameters
    ----------
    rows : int
        Rows to be asked.
    lanes : tuple of str
        The providers' names.
    limits : sequence of Limits
        What each provider bears, where that is known.
    groups : sequence of Group
        The rows by who may be asked about them. Default: anybody about any row.
    """

    __slots__ = (
        "_answered", "_duplicates", "_errors", "_examples", "_finished", "_groups", "_lanes", "_open_rows",
        "_open_units", "_reused", "_rows",
    )  # fmt: skip

    def __init__(
        self, rows: int, lanes: tuple[str, ...], limits: Sequence[Limits] = (), groups: Sequence[Group] = ()
    ) -> None:
        self._rows = rows
        self._answered = self._reused = 0
        self._errors: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._groups = tuple(groups) or (Group(frozenset(range(len(lanes))), rows, rows),)
        self._open_rows = {number: group.rows for number, group in enumerate(self._groups)}
        self._open_units = {number: group.units for number, group in enumerate(self._groups)}
        self._duplicates = rows - sum(group.units for group in self._groups)
        self._lanes = [_Lane(name, limits[index] if limits else None) for index, name in enumerate(lanes)]
        self._finished: str | None = None

    def fold(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case Sent(lane):
                self.sent(lane)
            case Attempted():
                self.attempted(*event)
            case Settled():
                self.settled(*event)
            case Retrying(lane, rows):
                self._lanes[lane].retrying += rows
            case Paused(lane, until):
                self._lanes[lane].paused_until = until
            case Held(lane, by, at):
                self._lanes[lane].hold(by, at)
            case Concurrency(lane, slots):
                self._lanes[lane].slots = slots
            case Adapted(lane, how):
                self._lanes[lane].adapted[how] = None
            case Stopped(lane, failure):
                self._lanes[lane].stopped = failure
            case Finished(why, at):
                self._finished = why
                for tally in self._lanes:
                    tally.retrying = 0
                    tally.hold(None, at)

    # Each request has one of each of these: they can be had without an event.

    def sent(self, lane: int) -> None:
        """Take in a `Sent`."""
        self._lanes[lane].in_flight += 1

    def attempted(
        self,
        lane: int,
        kind: str | None,
        started: float,
        ended: float,
        tokens_in: int,
        tokens_out: int,
        cost: float | None = None,
    ) -> None:
        """Take in an `Attempted`."""
        tally = self._lanes[lane]
        tally.in_flight -= 1
        tally.requests += 1
        tally.tokens_in += tokens_in
        tally.tokens_out += tokens_out
        tally.cost.add(cost)
        if kind is None:
            bucket = _bucket(ended - started)
            tally.latency[bucket] = tally.latency.get(bucket, 0) + 1

    def settled(
        self,
        lane: int,
        rows: int,
        kind: str | None,
        reused: bool = False,
        group: int = 0,
        message: str | None = None,
    ) -> None:
        """Take in a `Settled`."""
        tally = self._lanes[lane]
        self._open_rows[group] = self._open_rows.get(group, 0) - rows
        self._open_units[group] = self._open_units.get(group, 0) - 1
        if kind is None:
            self._answered += rows
            tally.answered += rows
            if reused:
                self._reused += rows
                tally.reused += rows
        else:
            self._errors[kind] += rows
            tally.failed += rows
            if message is not None:
                self._examples.setdefault(kind, message)

    def snapshot(self, now: float = 0.0, elapsed: float = 0.0) -> Snapshot:
        """Where the run stands ``now``, on the clock of the events, so many seconds after it began."""
        return Snapshot(
            self._rows,
            self._answered,
            sum(self._errors.values()),
            dict(self._errors),
            tuple(self._lane(index, lane, now) for index, lane in enumerate(self._lanes)),
            self._finished,
            self._reused,
            self._duplicates,
            dict(self._examples),
            now,
            elapsed,
        )

    def _lane(self, index: int, lane: _Lane, now: float) -> LaneSnapshot:
        mine = [number for number, group in enumerate(self._groups) if index in group.lanes]
        p50, p99 = _quantiles(lane.latency.copy(), (0.50, 0.99))
        return LaneSnapshot(
            lane.name, lane.in_flight, lane.requests, lane.answered, lane.failed,
            lane.tokens_in, lane.tokens_out, lane.paused_until, lane.stopped, tuple(lane.adapted),
            lane.cost.usd, lane.cost.is_partial, lane.reused, lane.retrying,
            sum(self._open_rows[number] for number in mine), sum(self._open_units[number] for number in mine),
            sum(self._open_rows[number] * self._share(number, index) for number in mine),
            p50, p99,
            lane.held_by, lane.held + (max(0.0, now - lane.held_since) if lane.held_by is not None else 0.0),
            lane.slots,
        )  # fmt: skip

    def _share(self, group: int, index: int) -> float:
        """The part of a group's open rows that a provider will probably take."""
        rivals = self._groups[group].lanes
        able = [lane for lane in rivals if self._lanes[lane].stopped is None] or list(rivals)
        if index not in able:
            return 0.0
        done = {lane: self._lanes[lane].settled for lane in able}
        if not sum(done.values()):
            done = {lane: self._lanes[lane].slots or 1 for lane in able}
        return done[index] / sum(done.values())


class _Lane:
    __slots__ = (
        "adapted", "answered", "cost", "failed", "held", "held_by", "held_since", "in_flight", "latency", "name",
        "paused_until", "requests", "retrying", "reused", "slots", "stopped", "tokens_in", "tokens_out",
    )  # fmt: skip

    def __init__(self, name: str, limits: Limits | None) -> None:
        self.name = name
        self.in_flight = self.requests = self.answered = self.failed = self.tokens_in = self.tokens_out = 0
        self.reused = self.retrying = 0
        self.paused_until: float | None = None
        self.stopped: Failure | None = None
        self.adapted: dict[str, None] = {}
        self.cost = Tally()
        self.latency: dict[int, int] = {}
        """Replies by `_bucket`."""
        self.held_by: str | None = None
        self.held = self.held_since = 0.0
        self.slots = None if limits is None else limits.max_concurrency

    def hold(self, by: str | None, at: float) -> None:
        """Count the time since it was last held, and begin anew."""
        if self.held_by is not None:
            self.held += max(0.0, at - self.held_since)
        self.held_by, self.held_since = by, at

    @property
    def settled(self) -> int:
        return self.answered - self.reused + self.failed


# ---- latencies: a histogram with 16 buckets for each doubling, so that a quantile is right to 3 % ----------


def _bucket(seconds: float) -> int:
    mantissa, exponent = frexp(seconds if seconds > _SHORTEST else _SHORTEST)
    return exponent * 16 + int(mantissa * 32) - 16


_SHORTEST = 2.0**-14


def _quantiles(histogram: Mapping[int, int], wanted: Sequence[float]) -> list[float | None]:
    """The middle of the bucket in which each quantile lies; ``wanted`` ascends."""
    total = sum(histogram.values())
    if not total:
        return [None] * len(wanted)
    found: list[float | None] = []
    below = 0
    for bucket in sorted(histogram):
        below += histogram[bucket]
        while len(found) < len(wanted) and below > wanted[len(found)] * (total - 1):
            exponent, step = divmod(bucket, 16)
            found.append(ldexp((step + 16.5) / 32, exponent))
    return found
