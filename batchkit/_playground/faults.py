"""What goes wrong, when, and how long an answer takes: drawn from a seed and the row, never from the clock."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchkit._playground.server import Server

__all__ = ["Bucket", "Draw", "draw"]

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


class Bucket:
    """A quota per minute that refills continuously and holds one second of it, at least one request."""

    def __init__(self, rpm: float, now: float) -> None:
        self._rate = rpm / 60
        self._size = max(1.0, self._rate)
        self._level = self._size
        self._at = now

    def take(self, now: float) -> float:
        """Take one request out and return 0.0, or take none and return the seconds until there is one."""
        self._level = min(self._size, self._level + (now - self._at) * self._rate)
        self._at = now
        # A hundredth of a millionth of a request is rounding, not a reason to refuse one.
        if self._level >= 1 - 1e-8:
            self._level -= 1
            return 0.0
        return (1 - self._level) / self._rate
