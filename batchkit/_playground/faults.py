"""What goes wrong, when, and how long an answer takes: drawn from a seed and the row, never from the clock."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from batchkit._playground.server import Server

__all__ = ["Bucket", "Draw", "Gauge", "draw"]

# Setting of Server -> fate of the request.
_FATES = {
    "server_errors": "server_error",
    "drops": "drop",
    "garbage": "garbage",
    "truncated": "truncated",
    "invalid": "invalid",
    "hangs": "hang",
}


@dataclass(frozen=True, slots=True)
class Draw:
    """What chance has in store for one request."""

    fate: str
    latency: float
    """Seconds from the request's arrival to its answer."""
    serial: str
    """Hexadecimal digits that differ from draw to draw, for ids."""


def draw(server: Server, seed: int, name: str, text: str, nth: int) -> Draw:
    """Draw the fate and the latency of the ``nth`` time that ``text`` is asked of the server called ``name``.

    Equal arguments give the equal draw, so what happens to a row does not depend on the order in
    which rows arrive, nor on how many are in flight.
    """
    key = f"{seed}\0{name}\0{nth}\0".encode() + text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(key, digest_size=24).digest()
    return Draw(_fate(server, _fraction(digest[:8])), _latency(server, _fraction(digest[8:16])), digest[16:].hex())


def _fraction(eight_bytes: bytes) -> float:
    # Of 53 bits, and in the middle of its step: strictly between 0 and 1.
    return ((int.from_bytes(eight_bytes, "big") >> 11) + 0.5) / 2**53


def _fate(server: Server, chance: float) -> str:
    for setting, fate in _FATES.items():
        chance -= getattr(server, setting)
        if chance < 0:
            return fate
    return "answered"


def _latency(server: Server, chance: float) -> float:
    if not server.jitter:
        return server.latency
    return max(0.0, NormalDist(server.latency, server.jitter).inv_cdf(chance))


class Gauge(NamedTuple):
    """What is left in a bucket, as of one moment."""

    limit: float
    """Per minute."""
    used: float
    """What is to flow in until the bucket is full."""
    reset: float
    """Seconds until then."""
    is_empty: bool
    """Whether not even one may be taken."""

    @property
    def remaining(self) -> int:
        """What of a minute's quota is not used up; 0 where nothing may be taken now."""
        return 0 if self.is_empty else max(0, math.floor(self.limit - self.used))


class Bucket:
    """A quota per minute that refills continuously and holds one second of it, at least one request."""

    def __init__(self, per_minute: float, now: float) -> None:
        self._limit = per_minute
        self._rate = per_minute / 60
        self._size = max(1.0, self._rate)
        self._level = self._size
        self._at = now

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take ``amount`` out and return 0.0, or take nothing and return the seconds until it is there.

        What is more than the bucket holds is taken when it is full, and leaves a debt.
        """
        self._refill(now)
        wanted = min(amount, self._size)
        # A hundredth of a millionth of a request is rounding, not a reason to refuse one.
        if self._level >= wanted - 1e-8:
            self._level -= amount
            return 0.0
        return (wanted - self._level) / self._rate

    def give_back(self, now: float, amount: float) -> None:
        """Put back what was taken and not used, or take what was used beyond it, where negative."""
        self._refill(now)
        self._level = min(self._size, self._level + amount)

    def read(self, now: float) -> Gauge:
        """Say what is left."""
        self._refill(now)
        used = self._size - self._level
        return Gauge(self._limit, used, used / self._rate, self._level < 1 - 1e-8)

    def _refill(self, now: float) -> None:
        self._level = min(self._size, self._level + (now - self._at) * self._rate)
        self._at = now
