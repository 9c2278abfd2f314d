"""What happened, in columns: one entry per unit, one per attempt. Readable at any moment, from any thread."""

from __future__ import annotations

import itertools
import time
from array import array
from typing import Any

from batchkit import events
from batchkit._engine.plan import Plan
from batchkit._engine.stream import STREAM
from batchkit._logic.itinerary import Outcome, seats_of
from batchkit._logic.pricing import cost_of
from batchkit._logic.progress import (
    Adapted,
    Event,
    Finished,
    Group,
    Paused,
    Progress,
    Retrying,
    Snapshot,
    Stopped,
)
from batchkit.records import ERROR_KINDS, Completion, Failure

__all__ = ["ANSWERED", "FAILED", "PENDING", "Attempts", "Ledger"]

PENDING, ANSWERED, FAILED = range(3)
_CODE = {kind: code for code, kind in enumerate(ERROR_KINDS)}
_NAN = float("nan")
_numbers = itertools.count(1)


class Attempts:
    """One entry per request, in the order in which they ended."""

    __slots__ = (
        "cost", "ended", "finish", "kind", "lane", "message", "model", "request_id",
        "started", "status", "tokens_cached", "tokens_in", "tokens_out", "unit",
    )  # fmt: skip

    def __init__(self) -> None:
        self.unit = array("i")
        self.lane = array("h")
        self.started = array("d")
        self.ended = array("d")
        self.kind = array("b")
        """Position in ``ERROR_KINDS``; -1 where a completion came."""
        self.status = array("h")
        """HTTP status of a failure; 0 where there is none."""
        self.tokens_in = array("q")
        self.tokens_out = array("q")
        self.tokens_cached = array("q")
        self.cost = array("d")
        """USD; NaN where it is unknown."""
        self.finish: list[str | None] = []
        self.model: list[str | None] = []
        self.request_id: list[str | None] = []
        self.message: list[str | None] = []

    def __len__(self) -> int:
        # The last column to be appended: an entry counts once it is whole.
        return len(self.message)


class Ledger:
    """The state of every unit, and every attempt made.

    Written by the engine's thread alone. Readers may see a run that is a moment old, never a
    unit half written: its state is set last.
    """

    def __init__(self, plan: Plan) -> None:
        count = len(plan.texts)
        self.state = bytearray(count)
        self.values: list[Any] = [None] * count
        self.confidence = array("d", [_NAN]) * count
        self.source: list[str | None] = [None] * count
        self.lane = array("h", [-1]) * count
        """Who answered, or who was tried last; -1 where nobody was."""
        self.kind = array("b", [-1]) * count
        self.messages: dict[int, str] = {}
        self.first_failed: int | None = None
        self.order = array("i")
        """Units in the order in which they were settled."""
        self.attempts = Attempts()
        self.started_at = time.time()
        """Wall clock, seconds since the epoch."""
        self.began = 0.0
        """The engine's own clock at the start; attempts are on the same clock."""
        self.ended: float | None = None
        self.number: int | None = None
        """Which run of the process this is; None before it starts."""
        self._task = plan.task.name
        self._row_of: Any = range(count)
        self._names = [lane.name for lane in plan.lanes]
        self._rows = plan.rows
        self._prices = [lane.price for lane in plan.lanes]
        self._codes = plan.codes
        self._again: dict[int, int] = {}
        """Units that failed and have no outcome yet, and who failed on them last."""
        self._progress = Progress(
            sum(plan.rows),
            tuple(lane.name for lane in plan.lanes),
            [lane.limits for lane in plan.lanes],
            _groups(plan),
        )

    def announce(self, row_of: Any = None) -> None:
        """Give the run its number, and tell observers that it starts; ``row_of`` has the first row of each unit."""
        self.number = next(_numbers)
        if row_of is not None:
            self._row_of = row_of
        if STREAM.feeds:
            STREAM.tell(events.Started(self.number, time.time(), self._task, sum(self._rows), tuple(self._names)))

    def sent(self, lane: int) -> None:
        """Note that a unit's request left."""
        self._progress.sent(lane)
        if STREAM.feeds and self.number is not None:
            STREAM.tell(events.Sent(self.number, time.time(), self._names[lane]))

    def attempted(
        self, unit: int, lane: int, started: float, ended: float, result: Completion | Failure
    ) -> float | None:
        """Note what came of a request, and return what it cost; None where that is unknown."""
        log = self.attempts
        price = self._prices[lane]
        paid = None if price is None else cost_of(result, price)
        self.lane[unit] = lane
        log.unit.append(unit)
        log.lane.append(lane)
        log.started.append(started)
        log.ended.append(ended)
        log.request_id.append(result.request_id)
        if isinstance(result, Failure):
            kind: str | None = result.kind
            message: str | None = result.message
            tokens_in = tokens_out = cached = 0
            log.kind.append(_CODE[result.kind])
            log.status.append(result.status or 0)
            log.finish.append(None)
            log.model.append(None)
        else:
            kind = message = None
            usage = result.usage
            tokens_in, tokens_out, cached = usage.input, usage.output, usage.cached
            log.kind.append(-1)
            log.status.append(0)
            log.finish.append(result.finish._value_)  # .value is a property, and slow
            log.model.append(result.model)
        log.tokens_in.append(tokens_in)
        log.tokens_out.append(tokens_out)
        log.tokens_cached.append(cached)
        log.cost.append(_NAN if paid is None else paid)
        log.message.append(message)
        self._progress.attempted(lane, kind, started, ended, tokens_in, tokens_out, paid)
        if self._again:
            self._stand_still(unit)
        if kind is not None:
            self._again[unit] = lane
            self.tell(Retrying(lane, self._rows[unit]))
        if STREAM.feeds and self.number is not None:
            row, status = int(self._row_of[unit]), log.status[-1] or None
            name, seconds, model, number = self._names[lane], ended - started, log.model[-1], result.request_id
            told = (name, row, seconds, kind, status, tokens_in, tokens_out, paid, model, number, message)
            STREAM.tell(events.Attempted(self.number, time.time(), *told))
        return paid

    def settled(self, unit: int, outcome: Outcome, *, reused: bool = False) -> None:
        """Give a unit its answer, perhaps one that was paid for before, or its error."""
        answer, failure = outcome.answer, outcome.failure
        self.lane[unit] = outcome.provider
        rows, code = self._rows[unit], self._codes[unit]
        if self._again:
            self._stand_still(unit)
        if answer is not None:
            self.values[unit] = answer.value
            self.confidence[unit] = _NAN if answer.confidence is None else answer.confidence
            self.source[unit] = answer.confidence_source
            self.state[unit] = ANSWERED
            self.order.append(unit)
            self._progress.settled(outcome.provider, rows, None, reused, code)
        elif failure is not None:
            self.kind[unit] = _CODE[failure.kind]
            self.messages[unit] = failure.message
            self.state[unit] = FAILED
            self.order.append(unit)
            if self.first_failed is None:
                self.first_failed = unit
            self._progress.settled(outcome.provider, rows, failure.kind, False, code, failure.message)
        if STREAM.feeds and self.number is not None:
            kind, message = (None, None) if failure is None else (failure.kind, failure.message)
            name, row = self._names[outcome.provider], int(self._row_of[unit])
            STREAM.tell(events.Settled(self.number, time.time(), name, row, rows, kind, reused, message))

    def finished(self, why: str, at: float) -> None:
        """Close the run."""
        self.ended = at
        self.tell(Finished(why, at))

    def tell(self, event: Event) -> None:
        """Fold an event into the run's progress."""
        self._progress.fold(event)
        if STREAM.feeds and self.number is not None:
            self._publish(event, self.number)

    def snapshot(self) -> Snapshot:
        """Where the run stands now."""
        now = time.monotonic() if self.ended is None else self.ended
        return self._progress.snapshot(now, max(0.0, now - self.began) if self.began else 0.0)

    def _publish(self, event: Event, run: int) -> None:
        """Tell observers of a rare event. Not of `Retrying`: that is bookkeeping of what they were told already."""
        at = time.time()
        match event:
            case Paused(lane, until):
                seconds = max(0.0, until - time.monotonic())
                STREAM.tell(events.Paused(run, at, self._names[lane], seconds))
            case Adapted(lane, how):
                STREAM.tell(events.Adapted(run, at, self._names[lane], how))
            case Stopped(lane, failure):
                STREAM.tell(events.Stopped(run, at, self._names[lane], failure.kind, failure.message))
            case Finished(why):
                now = self.snapshot()
                STREAM.tell(events.Finished(run, at, why, now.rows, now.answered, now.failed))

    def _stand_still(self, unit: int) -> None:
        """Count a unit no longer among those that are tried again."""
        lane = self._again.pop(unit, None)
        if lane is not None:
            self.tell(Retrying(lane, -self._rows[unit]))


def _groups(plan: Plan) -> list[Group]:
    """The plan's rows by itinerary, and who may be asked about each."""
    units, rows = [0] * len(plan.itineraries), [0] * len(plan.itineraries)
    for code, count in zip(plan.codes, plan.rows, strict=True):
        units[code] += 1
        rows[code] += count
    lanes = [frozenset().union(*(seat.providers for seat in seats_of(node))) for node in plan.itineraries]
    return [Group(*group) for group in zip(lanes, units, rows, strict=True)]
