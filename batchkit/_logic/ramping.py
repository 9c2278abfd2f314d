"""How many requests may be in flight at once. Arithmetic only: `now` is handed in."""

from __future__ import annotations

import math
from statistics import median

__all__ = ["Ramp", "Window"]

_PAYS = 1.25
"""So many times as many replies a second, and twice as many requests at once are worth it."""
_FEW = 3
"""Fewer replies say nothing about a latency."""
_SHORTEST = 1e-6
"""Seconds that a reply takes at least: clocks are coarse."""
_REST = 20
"""Rounds of replies after which other numbers are tried again."""
_CALM, _CALMEST = 10, 320
"""Answers without a refusal after which one more is let in flight: at first, and where that is always refused."""
_DOUBT = 10
"""Refusals that are put down to speed after one that cannot have been for too many at once."""


class Ramp:
    """Finds how many requests at once a server makes use of that tells nobody.

    What a server gets done in a second is what is in flight over the latency (J. D. C. Little,
    "A Proof for the Queuing Formula: L = λW", 1961). So twice as many at once pay off, unless each
    then takes about twice as long because it waits in the server. It begins with half of the most
    there may be. It goes up for as long as that pays; where it does not, down for as long as that
    costs nothing; and tries again after a while, unless it has come to the most.

    Parameters
    ----------
    most : int
        Requests in flight that there may be.
    """

    __slots__ = (
        "_before", "_halvings", "_home", "_is_trial", "_latencies", "_rest", "_settled", "_since", "_up", "_usual",
        "most",
    )  # fmt: skip

    def __init__(self, most: int) -> None:
        self.most = most
        self._halvings = self._home = 0 if most == 1 else 1
        """The number that holds, and the one against which it is on trial."""
        self._settled = most == 1
        self._is_trial = False
        self._up = True
        self._rest = 0
        self._latencies: list[float] = []
        self._usual: list[float] = []
        """Latencies under the number against which another is on trial."""
        self._since = self._before = -math.inf
        """When the number that holds came to hold, and when the one before it."""

    def __repr__(self) -> str:
        return f"Ramp({self.slots} of {self.most})"

    @property
    def slots(self) -> int:
        """Requests in flight that there may be now."""
        return self.most >> self._halvings

    def replied(self, sent: float, now: float) -> bool:
        """Note the end of a request that left at ``sent``, all slots being taken; whether their number changed."""
        if self._settled:
            return False
        if self._rest:
            self._rest -= 1
            return False
        if sent > self._since:  # what left at that very moment may have left under the number before
            self._latencies.append(now - sent)
        elif self._is_trial and self._before < sent < self._since:
            self._usual.append(now - sent)
        enough = max(_FEW, self.slots)
        if len(self._latencies) < enough:
            return False
        if not self._is_trial:
            return self._try_next(now)
        pays = self._gain() >= _PAYS
        if not pays and len(self._latencies) < 2 * enough:
            return False  # that more makes no difference needs a second look
        if pays is self._up:
            self._home = self._halvings
            return self._try_next(now)
        self._hold(self._home, now)
        self._is_trial = False
        if not self._up:
            self._rest = _REST * self.slots
        self._up = not self._up
        return True

    def _gain(self) -> float:
        """How many times as many replies a second the larger of both numbers gives."""
        rate = self.slots / max(median(self._latencies), _SHORTEST)
        usual = (self.most >> self._home) / max(median(self._usual), _SHORTEST)
        return rate / usual if self._up else usual / rate

    def _try_next(self, now: float) -> bool:
        """Put the next number on trial against this one, if there is one; whether there is."""
        self._usual = self._latencies
        self._is_trial = True
        if self._up and self._halvings:
            self._hold(self._halvings - 1, now)
            return True
        if not self._up and self.slots > 1:
            self._hold(self._halvings + 1, now)
            return True
        self._settled = self._up
        self._is_trial = False
        self._latencies = []
        self._up = True
        self._rest = _REST * self.slots
        return False

    def _hold(self, halvings: int, now: float) -> None:
        self._halvings = halvings
        self._before, self._since = self._since, now
        self._latencies = []


class Window:
    """Keeps what is in flight at a provider to what it takes: fewer after a refusal, more again after a calm while.

    The way of TCP's congestion window (V. Jacobson, "Congestion Avoidance and Control", 1988): all
    that was in flight when a provider began to refuse is one event, after which so many may be in
    flight as were not refused; or half, where it says that it is overloaded. A request that is
    refused though fewer are in flight than were taken before came too fast, not one too many.

    Attributes
    ----------
    most : float
        Requests that may be in flight; infinity where nothing was refused yet.
    """

    __slots__ = ("_added", "_calm", "_cut_at", "_doubt", "_needed", "_taken_at_once", "most")

    def __init__(self) -> None:
        self.most = math.inf
        self._taken_at_once = 0.0
        """So many, as far as refusals show."""
        self._cut_at = -math.inf
        self._calm = 0
        """Answers since something was refused or added."""
        self._needed = _CALM
        self._added = 0
        self._doubt = 0

    def __repr__(self) -> str:
        return f"Window({self.most:g})"

    def refused(self, sent: float, now: float, others: int) -> bool:
        """Note that a request that had left at ``sent`` was refused beside ``others``; whether it was one too many.

        Otherwise it came too fast.
        """
        self._calm = 0
        if sent < self._cut_at:
            self.most = self._taken_at_once = max(1.0, min(self.most, self._taken_at_once) - 1)
            return True
        if others < max(1, self._taken_at_once):
            self._taken_at_once = others
            self._doubt = _DOUBT
            self._needed = _CALM
            self.most *= 2
            return False
        if self._doubt:
            self._doubt -= 1
            return False
        self._cut(now, others)
        return True

    def overloaded(self, sent: float, now: float, slots: int, *, for_all: bool) -> bool:
        """Note an overload answer, of one that had left at ``sent``; whether it lowers what may be in flight.

        It does where the provider is overloaded ``for_all`` and not for this one alone.
        """
        self._calm = 0
        if not for_all or sent < self._cut_at:
            return False
        self._cut(now, slots // 2)
        return True

    def taken(self) -> bool:
        """Note that a request was answered; whether more may be in flight from here on."""
        self._calm += 1
        if self._calm < self._needed or self.most == math.inf:
            return False
        self.most += 1
        self._added += 1
        self._calm = 0
        return True

    def _cut(self, now: float, most: int) -> None:
        self.most = self._taken_at_once = max(1.0, most)
        self._cut_at = now
        # Where the first that was added was one too many, this is all that it takes.
        self._needed = min(2 * self._needed, _CALMEST) if self._added == 1 else _CALM
        self._added = 0
