"""Where units wait: tickets, the line of each set of providers, and those to be asked again later."""

from __future__ import annotations

import heapq
import itertools
import math
from array import array
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchkit.records import Failure, Question

if TYPE_CHECKING:
    from batchkit._engine.execute import Lane

__all__ = ["Later", "Line", "Ticket"]


class Ticket:
    """One unit at one seat, from its first attempt to its outcome."""

    __slots__ = ("first_at", "had_full_cap", "last", "question", "retries", "seat", "tries", "unit")

    def __init__(self, unit: int, seat: int) -> None:
        self.unit = unit
        self.seat = seat
        self.question: Question | None = None
        self.first_at = math.inf
        self.tries = 0
        self.retries = 0
        """Repetitions that count against ``max_retries``."""
        self.last: Failure | None = None
        self.had_full_cap = False
        """Whether it was asked under the cap that holds where money is not short."""

    @property
    def was_cut(self) -> bool:
        """Whether its answer was cut, so that it needs more room."""
        return self.question is not None and self.question.room > 1


class Line:
    """The queue of one set of providers: units not asked yet in row order, before them those to be asked again.

    Behind them stand those whose answer was cut and whose longer one there was no money for.
    """

    __slots__ = ("again", "back", "dead", "fresh", "lanes", "position", "seats")

    def __init__(self, lanes: list[Lane]) -> None:
        self.lanes = lanes
        self.fresh = array("i")
        self.seats = array("h")
        self.position = 0
        self.again: deque[Ticket] = deque()
        self.back: deque[Ticket] = deque()
        self.dead: Failure | None = None
        """Why nobody of the set can answer any more."""

    def add(self, unit: int, seat: int) -> None:
        """Put a unit that was not asked yet at the end."""
        self.fresh.append(unit)
        self.seats.append(seat)

    def head(self) -> int | None:
        """The unit that is next, None when there is none."""
        if self.again:
            return self.again[0].unit
        if self.position < len(self.fresh):
            return self.fresh[self.position]
        return self.back[0].unit if self.back else None

    def is_back(self) -> bool:
        """Whether nothing is left but what was set back."""
        return not self.again and self.position == len(self.fresh)

    def asked(self) -> Ticket | None:
        """The next one, if it was asked before."""
        if self.again:
            return self.again[0]
        return self.back[0] if self.back and self.is_back() else None

    def set_back(self) -> bool:
        """Put the next one behind all others, if its answer was cut and there are others; whether that was done."""
        if not self.again or not self.again[0].was_cut:
            return False
        if len(self.again) == 1 and self.position == len(self.fresh):
            return False
        ticket = self.again.popleft()
        ticket.first_at, ticket.tries = math.inf, 0  # waiting behind other rows is not of its time
        self.back.append(ticket)
        return True

    def pop(self) -> Ticket:
        """Take the next one."""
        if self.again:
            return self.again.popleft()
        if self.position == len(self.fresh):
            return self.back.popleft()
        position = self.position
        self.position = position + 1
        return Ticket(self.fresh[position], self.seats[position])

    def ends_at(self, deadline: float) -> float:
        """When the next one's time is up; one that was not asked yet has all the time there is."""
        return self.again[0].first_at + deadline if self.again else math.inf

    def drain(self) -> Iterator[Ticket]:
        """Take all."""
        while self.head() is not None:
            yield self.pop()


class Later:
    """Tickets that wait for a moment: they hold no slot meanwhile."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Line, Ticket]] = []
        self._order = itertools.count()

    @property
    def next_at(self) -> float | None:
        """The earliest moment, None when nobody waits."""
        return self._heap[0][0] if self._heap else None

    def add(self, at: float, line: Line, ticket: Ticket) -> None:
        """Let a ticket come back to its line at ``at``."""
        heapq.heappush(self._heap, (at, next(self._order), line, ticket))

    def due(self, now: float) -> Iterator[tuple[Line, Ticket]]:
        """Take those whose moment has come."""
        while self._heap and self._heap[0][0] <= now:
            _, _, line, ticket = heapq.heappop(self._heap)
            yield line, ticket

    def drain(self, line: Line) -> list[Ticket]:
        """Take all of one line."""
        found = [entry[3] for entry in self._heap if entry[2] is line]
        self._heap = [entry for entry in self._heap if entry[2] is not line]
        heapq.heapify(self._heap)
        return found
