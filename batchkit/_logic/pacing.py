"""When to ask again, and when to let the next request go. Arithmetic only: `now` and `rng` are handed in."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import backoff

from batchkit.records import Failure, Limits, Scope

if TYPE_CHECKING:
    from random import Random

__all__ = ["GiveUp", "Pace", "Quota", "Retry", "decide"]

# backoff.expo yields None once before its first value (it is written for `send`).
_CEILINGS = tuple(itertools.islice(backoff.expo(base=2, factor=1, max_value=60), 1, 9))
_WINDOW = 60.5
"""Seconds of log behind a per-minute limit: arrival times jitter, and the provider's clock counts."""
_DEPTH = 0.9
"""Seconds' worth of a limit that may go at once: a provider's own second begins when the first request arrives."""
_FEW = 5
"""Fewer requests say nothing about a rate."""
_SHORTEST_LOOK = 0.25
"""Nor do fewer seconds."""
_GUESS, _SLOWEST = 300.0, 10.0
"""Requests per minute at first where so few were taken before one was refused; halved down to the second."""
_HALF, _BELOW, _LEAST = 0.5, 0.95, 0.7
"""A pace is set to this part of what was taken: before any was refused, and since; and to no less of itself."""
_FIRST_STEP, _LARGEST_STEP, _MEASURED_STEP = 0.02, 0.15, 0.04
"""By what share a pace grows in a calm second: twice as much in each, up to the last of these once it was measured."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask again after ``wait`` seconds."""

    wait: float
    counts: bool
    """Whether this uses up one of the row's ``max_retries``."""
    pause_lane: float = 0.0
    """Seconds for which nothing more should be sent to this provider."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not ask this provider for this row again."""

    failure: Failure


def decide(
    failure: Failure, *, retries: int, tries: int, elapsed: float, limits: Limits, rng: Random
) -> Retry | GiveUp:
    """Say what follows a failed attempt.

    Rate limits and overload do not use up ``max_retries``: only the row's deadline bounds them.

    Parameters
    ----------
    failure : Failure
        What came of the attempt.
    retries : int
        Counted repetitions of this row so far.
    tries : int
        Attempts of this row so far, this one included.
    elapsed : float
        Seconds since the row's first attempt.
    limits : Limits
        The provider's.
    rng : random.Random
        For the jitter ("full jitter" over an exponential ceiling: M. Brooker, "Exponential
        Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    if failure.scope is not Scope.TRANSIENT:
        return GiveUp(failure)
    counts = failure.kind != "rate_limited" and not failure.overloaded
    # A reply that its own provider found invalid is the model's whim: once more, like any invalid answer.
    if counts and retries >= (min(1, limits.max_retries) if failure.kind == "invalid_answer" else limits.max_retries):
        return GiveUp(failure)
    wait = _CEILINGS[min(tries - 1, len(_CEILINGS) - 1)] * rng.random()
    asked = failure.retry_after
    if asked is not None:
        if not counts and asked > limits.deadline:
            text = (
                f"{failure.message} The provider asks for a wait of {_duration(asked)}, longer than "
                f"deadline={limits.deadline:g} s: run again later, or raise deadline=."
            )
            return GiveUp(replace(failure, kind="rate_limited", scope=Scope.PROVIDER, message=text))
        # A little later than asked, each row by another bit: all rows got the same hint.
        wait = max(wait, asked * (1 + rng.random() / 4))
    if elapsed + wait > limits.deadline:
        return GiveUp(failure)
    return Retry(wait, counts, 0.0 if counts or asked is None else asked)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


class Pace:
    """How fast a provider takes requests that tells nobody its limits: measured where it refuses some.

    A request refused for coming too fast (HTTP 429) says that nothing is left of what the
    provider allows. So what is taken from one such moment to a later one is what it allows for
    that time, and the pace is set a little below; at the first moment of all it is halved. As long
    as no request is refused the pace is raised, ever faster. That is additive increase and
    multiplicative decrease (D.-M. Chiu and R. Jain, "Analysis of the Increase and Decrease
    Algorithms for Congestion Avoidance", 1989) of a rate, which is what providers limit.

    Attributes
    ----------
    per_minute : float or None
        Requests per minute; None until something was refused.
    """

    __slots__ = ("_empty_at", "_grown_at", "_guessed_at", "_measured", "_refused", "_sent", "_step", "per_minute")

    def __init__(self) -> None:
        self.per_minute: float | None = None
        self._sent: deque[float] = deque()
        self._refused: deque[float] = deque()
        """When those that were refused had been sent, roughly in order."""
        self._empty_at: float | None = None
        """When a request was refused, since the pace was last raised."""
        self._measured = False
        """Whether it is more than half of what went before the first was refused."""
        self._step = _FIRST_STEP
        self._grown_at = -math.inf
        self._guessed_at = -math.inf
        """When a pace was set without knowing enough."""

    def __repr__(self) -> str:
        return f"Pace({'not known' if self.per_minute is None else f'{self.per_minute:.0f} per minute'})"

    @property
    def log(self) -> Iterable[float]:
        """When requests left in the last minute, the latest 10,000 of them."""
        return self._sent

    def sent(self, now: float) -> None:
        """Note that a request left at ``now``."""
        _log(self._sent, now, now)

    def refused(self, sent: float, now: float) -> None:
        """Note that a request that had left at ``sent`` was refused at ``now``."""
        _log(self._refused, sent, now)

    def slow_down(self, sent: float, now: float, limit: float | None = None) -> None:
        """Slow down after that: it came too fast, perhaps though it kept to a limit."""
        self._step = _FIRST_STEP
        self._grown_at = now
        current = self.per_minute
        if current is None:
            seconds, taken = self._lately(now)
            measured = _HALF * taken * 60 / seconds if taken >= _FEW else _GUESS
            self.per_minute = measured if limit is None else _BELOW * limit
            self._empty_at = self._guessed_at = now
        elif self._empty_at is None:
            self._empty_at = now
        elif now - self._empty_at >= _SHORTEST_LOOK and (taken := self._taken(self._empty_at)) >= _FEW:
            measured = _BELOW * taken * 60 / (now - self._empty_at)
            self.per_minute = min(current, max(measured, _LEAST * current) if self._measured else measured)
            self._empty_at = now
            self._measured = True
        elif not self._measured and sent >= self._guessed_at and self._lately(now)[1] < _FEW:
            # So few were taken that nothing can be said but that it was too fast.
            self.per_minute = min(current, max(_HALF * current, _SLOWEST))
            self._guessed_at = now

    def taken(self, now: float) -> bool:
        """Note that a request was taken; whether that raised the pace."""
        if self.per_minute is None or now - self._grown_at < 1.0 or self._taken(self._grown_at) < _FEW:
            return False
        self._grown_at = now
        seconds = max(1.0, _FEW * 60 / self.per_minute)
        if self._taken(now - seconds) * 60 / seconds < self.per_minute / 2:  # it is not what holds requests back
            return False
        self._empty_at = None
        self.per_minute *= 1 + self._step
        self._step = min(2 * self._step, _MEASURED_STEP if self._measured else _LARGEST_STEP)
        return True

    def _taken(self, since: float) -> int:
        sent = len(self._sent) - bisect.bisect_left(self._sent, since)
        return sent - sum(at >= since for at in self._refused)

    def _lately(self, now: float) -> tuple[float, int]:
        """In how many seconds, one to sixty, how many were taken: in more where that was little."""
        seconds = 1.0
        while (taken := self._taken(now - seconds)) < _FEW and seconds < 60:
            seconds *= 2
        return seconds, taken


def _log(times: deque[float], at: float, now: float) -> None:
    times.append(at)
    while times and (times[0] <= now - 60 or len(times) > 10_000):
        times.popleft()


class Quota:
    """A per-minute limit: a bucket of not quite one second's worth, and a log of the last 60.5 seconds.

    The bucket lets no burst out at the start; the log keeps any half-open minute within the limit.

    Parameters
    ----------
    per_minute : float
        Requests or tokens per minute.
    keeps_log : bool
        False for the bucket alone: a pace, of which no minute need be less than full.
    """

    __slots__ = ("_keeps_log", "_level", "_log", "_logged", "_size", "_stamp", "per_minute")

    def __init__(self, per_minute: float, *, keeps_log: bool = True) -> None:
        self._keeps_log = keeps_log
        self._level = math.inf
        self.change(per_minute)
        self._stamp = -math.inf
        self._log: deque[tuple[float, float]] = deque()
        self._logged = 0.0

    def __repr__(self) -> str:
        return f"Quota({self.per_minute:g} per minute, {self._logged:g} in the last minute)"

    def change(self, per_minute: float) -> None:
        """Set another limit; what went in the last minute still counts."""
        self.per_minute = per_minute
        self._size = max(1.0, per_minute / 60 * _DEPTH)  # but always room for one request
        self._level = min(self._level, self._size)

    def lower(self, now: float, left: float) -> None:
        """Take it that no more than ``left`` may go now, which the provider said: others use it, too."""
        self._refill(now)
        self._level = min(self._level, left)

    def wait(self, now: float, amount: float = 1.0) -> float:
        """Seconds until ``amount`` may go; 0 when it may go now. Takes nothing."""
        self._refill(now)
        # What is larger than the bucket leaves when it is full, and leaves a debt behind.
        wait = max(0.0, (min(amount, self._size) - self._level) * 60 / self.per_minute)
        logged = self._logged
        for at, part in self._log:
            if logged + amount <= self.per_minute * (1 + 1e-9):
                break
            logged -= part
            wait = max(wait, at + _WINDOW - now)
        return wait if wait > 1e-6 else 0.0

    def take(self, now: float, amount: float = 1.0) -> None:
        """Count ``amount`` as gone at ``now``."""
        self._refill(now)
        self._level -= amount
        if self._keeps_log:
            self._log.append((now, amount))
            self._logged += amount

    def correct(self, now: float, amount: float, taken: float) -> None:
        """Add (or give back, where negative) what an estimate was wrong by.

        Parameters
        ----------
        now : float
            The time.
        amount : float
            How much more was used than was taken.
        taken : float
            When the estimate was taken: what is given back must leave the log together with it.
        """
        self._refill(now)
        self._level = min(self._size, self._level - amount)
        place = bisect.bisect_right(self._log, taken, key=lambda entry: entry[0]) - 1
        if place >= 0 and self._log[place][0] == taken:
            self._log[place] = (taken, self._log[place][1] + amount)
            self._logged += amount

    def _refill(self, now: float) -> None:
        if now > self._stamp:
            passed = now - self._stamp
            self._level = min(self._size, self._level + passed * self.per_minute / 60)
            self._stamp = now
        while self._log and self._log[0][0] <= now - _WINDOW:
            self._logged -= self._log.popleft()[1]
