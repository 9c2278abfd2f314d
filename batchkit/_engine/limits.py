"""Gates: how much may be in flight at a provider at once, per minute, and in tokens.

A budget belongs to (base URL, key, model) for the whole process, whatever run or provider object
uses it. Nobody waits inside a gate: it says how long to wait, so a waiting row holds nothing.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Hashable

from batchkit._dialects.ratelimits import Allowances
from batchkit._logic.pacing import Pace, Quota
from batchkit._logic.ramping import Ramp, Window
from batchkit.records import Limits

__all__ = ["Gate", "gate_of"]


_TURN = 0.05
"""Whoever waits for so many seconds goes before all who came later; taking turns sooner would slow all down."""
_LATE = 0.05
"""Seconds for which its turn is kept after the moment at which it was to ask again."""


class Gate:
    """One budget. Of several limits on it, the strictest holds."""

    __slots__ = (
        "_counts_requests", "_counts_tokens", "_members", "_pace", "_paced", "_queue", "_ramp", "_requests", "_said",
        "_tokens", "_told", "_waiting", "_window", "held_by", "in_flight", "paused_until", "slots",
    )  # fmt: skip

    def __init__(self) -> None:
        self.in_flight = 0
        self.paused_until = -math.inf
        self.held_by = ""
        """The limit that made the latest request wait, in words."""
        self._members: list[Limits] = []
        self._queue: deque[Callable[[], None]] = deque()
        self._waiting: dict[Callable[[], None], tuple[float, float]] = {}
        """Those whom a limit lets nothing send: since when, longest waiting first, and when each will ask again."""
        self.slots = 1
        """Requests that may be in flight now."""
        self._window = Window()
        """Fewer slots than the limits allow where the provider refuses more."""
        self._ramp: Ramp | None = None
        """Fewer slots where nobody said how many, and more would only wait in the server."""
        self._requests: Quota | None = None
        self._tokens: Quota | None = None
        self._counts_requests = self._counts_tokens = False
        """Whether anyone who uses it now has such a limit; a log is kept on for those who come back."""
        self._told: tuple[float | None, float | None] = (None, None)
        """Requests and tokens per minute that the provider's replies say it allows."""
        self._said: Allowances | None = None
        """What the latest of those replies said."""
        self._pace = Pace()
        self._paced: Quota | None = None

    def __repr__(self) -> str:
        return f"<Gate {self.in_flight} of {self.slots} in flight, {self._requests}, {self._tokens}>"

    def join(self, limits: Limits) -> None:
        """Begin to use this budget under ``limits``."""
        self._members.append(limits)
        self._tighten()

    def quit(self, limits: Limits, mine: Callable[[], None] | None = None) -> None:
        """Stop using it; what the others allow holds again, and ``mine`` waits no more."""
        self._members.remove(limits)
        if mine is not None:
            self._waiting.pop(mine, None)
            if mine in self._queue:
                self._queue.remove(mine)
        if self._members:
            self._tighten()
            self.hand_on()
            self._wake_all()
        else:
            self._window = Window()  # whoever comes next may find the provider rested

    @property
    def counts_tokens(self) -> bool:
        """Whether it is of use to tell it what requests used."""
        return self._tokens is not None

    @property
    def tpm(self) -> float | None:
        """Tokens per minute, by whoever limits them most; None where nobody does."""
        return self._tokens.per_minute if self._tokens is not None and self._counts_tokens else None

    def has_room(self, tokens: float, input_share: float) -> bool:
        """Whether one request may have so many tokens at all: what is told is for the mix of the latest reply."""
        told = None if self._said is None else self._said.tokens_per_minute(input_share)
        most = _strictest([limits.tpm for limits in self._members], told)
        return most is None or tokens <= most

    def enter(self, now: float, tokens: float, wake: Callable[[], None]) -> float:
        """Let one request go, or say how many seconds to wait before asking again.

        Returns 0 when the request may leave now; it then counts. Returns infinity when all slots
        are taken: ``wake`` will be called when one is free, first come, first served.
        """
        if self.in_flight >= self.slots:
            if wake not in self._queue:
                self._queue.append(wake)
            return math.inf
        wait, held_by = self.paused_until - now, "a pause it asked for"
        if self._requests is not None and self._counts_requests and (needs := self._requests.wait(now)) > wait:
            wait, held_by = needs, f"{self._requests.per_minute:,g} requests a minute"
        if self._tokens is not None and self._counts_tokens and (needs := self._tokens.wait(now, tokens)) > wait:
            wait, held_by = needs, f"{self._tokens.per_minute:,g} tokens a minute"
        if self._paced is not None and (needs := self._paced.wait(now)) > wait:
            wait, held_by = needs, f"the pace it takes, about {self._paced.per_minute:,.0f} requests a minute"
        while self._waiting and wake is not (first := next(iter(self._waiting))):
            since, at = self._waiting[first]
            if at >= now - _LATE:
                if now - since > _TURN and (needs := max(at - now, 0.001)) > wait:  # it was here first
                    wait, held_by = needs, "another run's turn"
                break
            del self._waiting[first]  # it has nothing to send any more
        if wait > 0:
            self.held_by = held_by
            self._waiting[wake] = (self._waiting[wake][0] if wake in self._waiting else now, now + wait)
            return wait
        self._waiting.pop(wake, None)
        self.in_flight += 1
        self._pace.sent(now)
        if self._paced is not None:
            self._paced.take(now)
        if self._requests is not None:
            self._requests.take(now)
        if self._tokens is not None:
            self._tokens.take(now, tokens)
        return 0.0

    def leave(
        self, now: float, reserved: float, used: float | None, mine: Callable[[], None], entered: float | None = None
    ) -> None:
        """Note that a request is over, and what it really used where that is known.

        ``entered`` is when it was let in, now by default.

        Its slot goes to whoever waits longest. If that is ``mine``, the one who left, it is left
        free for it; should it have nothing more to send, it calls `hand_on`.
        """
        self.in_flight -= 1
        if self._tokens is not None and used is not None:
            self._tokens.correct(now, used - reserved, now if entered is None else entered)
            if used < reserved and self._waiting and self.in_flight < self.slots:
                next(iter(self._waiting))()  # what is given back is for whoever waits longest
        if self._queue:
            if self._queue[0] is mine:
                self._queue.rotate(-1)
            else:
                self.hand_on()

    def overloaded(self, sent: float, now: float, *, for_all: bool) -> bool:
        """Note an overload answer; whether fewer may be in flight from here on, see `Window`."""
        lowered = self._window.overloaded(sent, now, self.slots, for_all=for_all)
        if lowered:
            self._set_slots()
        return lowered

    def hear(self, now: float, said: Allowances, input_share: float | None = None) -> None:
        """Heed what a reply says about limits: they hold beside the users' own, and what others used up is gone.

        ``input_share`` is the part of a request's reserved tokens that are input.
        """
        told = (said.requests_per_minute, said.tokens_per_minute(input_share))
        self._said = said
        is_new = told != self._told
        if is_new:
            self._told = told
            self._tighten()
        if self._requests is not None and said.requests is not None and said.requests.remaining is not None:
            self._requests.lower(now, said.requests.remaining)
        if self._tokens is not None and said.tokens is not None and said.tokens.remaining is not None:
            self._tokens.lower(now, said.tokens.remaining)
        wait = said.wait()
        # A longer one is for a 429 to say, which stops the provider: nobody waits for hours on an answer's word.
        if 0 < wait <= max((limits.deadline for limits in self._members), default=0.0):
            self.pause(now + wait)
        if is_new:
            self._wake_all()

    def refused(self, sent: float, now: float) -> None:
        """Send more slowly, or fewer at once: a request that had left at ``sent`` was refused, see `Window`."""
        self._pace.refused(sent, now)
        too_many = self._window.refused(sent, now, self.in_flight - 1)
        self._set_slots()
        if not too_many or self._paced is None:
            known = self._requests if self._counts_requests else None
            self._pace.slow_down(sent, now, None if known is None else known.per_minute)
            self._keep_pace()
            if self._paced is not None:
                self._paced.lower(now, 0.0)

    def taken(self, now: float) -> None:
        """Note that a request was answered: what was slowed down may be faster again."""
        if self._pace.taken(now):
            self._keep_pace()
        if self._window.taken():
            self._set_slots()
            self.hand_on()

    def timed(self, sent: float, now: float) -> None:
        """Note how long a request took that is about to leave."""
        ramp = self._ramp
        if ramp is not None and self.in_flight >= ramp.slots and ramp.replied(sent, now):
            self._set_slots()
            self.hand_on()

    def pause(self, until: float) -> None:
        """Send nothing before ``until``."""
        self.paused_until = max(self.paused_until, until)

    def forget(self, mine: Callable[[], None]) -> None:
        """``mine`` has nothing to send any more: its turn is for the others."""
        if self._waiting.pop(mine, None) is not None:
            self._wake_all()

    def _wake_all(self) -> None:
        """Have all whom a limit held ask again: it may be another one now."""
        for wake in list(self._waiting):
            wake()

    def hand_on(self) -> None:
        """Give free slots to those who wait for one."""
        # One that has nothing to send any more takes no slot: go on to the next.
        while self._queue and self.in_flight < self.slots:
            self._queue.popleft()()

    def _tighten(self) -> None:
        self._set_slots()
        rpm = _strictest([limits.rpm for limits in self._members], self._told[0])
        tpm = _strictest([limits.tpm for limits in self._members], self._told[1])
        self._counts_requests, self._counts_tokens = rpm is not None, tpm is not None
        if rpm is not None:
            if self._requests is None:
                self._requests = Quota(rpm)
                for at in self._pace.log:
                    self._requests.take(at)
            self._requests.change(rpm)
        if tpm is not None:
            self._tokens = self._tokens or Quota(tpm)
            self._tokens.change(tpm)

    def _set_slots(self) -> None:
        most = min(limits.max_concurrency for limits in self._members)
        usual = [limits.max_concurrency for limits in self._members if limits.is_usual]
        if usual and (self._ramp is None or self._ramp.most != min(usual)):
            self._ramp = Ramp(min(usual))
        ramp = math.inf if self._ramp is None or not usual else self._ramp.slots
        self.slots = int(min(most, self._window.most, ramp))

    def _keep_pace(self) -> None:
        if self._pace.per_minute is not None:
            self._paced = self._paced or Quota(self._pace.per_minute, keeps_log=False)
            self._paced.change(self._pace.per_minute)


def _strictest(given: list[float | None], told: float | None) -> float | None:
    return min((limit for limit in (*given, told) if limit is not None), default=None)


_GATES: dict[Hashable, Gate] = {}
if hasattr(os, "register_at_fork"):
    # What is in flight in the parent never comes back to the child.
    os.register_at_fork(after_in_child=_GATES.clear)


def gate_of(budget: Hashable) -> Gate:
    """The process's one gate for a budget. Called on the engine's loop only."""
    gate = _GATES.get(budget)
    if gate is None:
        gate = _GATES[budget] = Gate()
    return gate
