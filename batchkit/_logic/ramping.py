"""How many requests at once a server makes use of. Arithmetic only: `now` is handed in."""

from __future__ import annotations

from statistics import median

__all__ = ["Ramp"]

_PAYS = 1.25
"""So many times as many replies a second, and twice as many requests at once are worth it."""
_FEW = 3
"""Fewer replies say nothing about a latency."""
_REST = 20
"""Rounds of replies after which other numbers are tried again."""


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
        self._since = self._before = 0.0
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
        if sent >= self._since:
            self._latencies.append(now - sent)
        elif self._is_trial and sent >= self._before:
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
        rate = self.slots / median(self._latencies)
        usual = (self.most >> self._home) / median(self._usual)
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
