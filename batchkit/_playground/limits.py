"""How each vendor tells in its headers what is left of a limit. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from batchkit._playground.faults import Gauge

__all__ = ["limit_headers", "plain"]

_MINUTES_A_DAY = 24 * 60

_Gauges = Mapping[str, Gauge]


def limit_headers(speaker: str, gauges: Mapping[str, Gauge], now: float) -> dict[str, str]:
    """Write the headers of a vendor, or of the one that a dialect is named after; none if it sends none.

    Parameters
    ----------
    speaker : str
        The vendor or dialect.
    gauges : mapping of str to Gauge
        What is left of ``"requests"`` and ``"tokens"``, where there is a limit on them.
    now : float
        Seconds since the epoch.
    """
    write = _WRITERS.get(speaker)
    return {} if write is None else write(gauges, now)


def plain(number: float) -> str:
    """Write a number as vendors do: whole ones without a point, however large."""
    return str(int(number)) if number == int(number) else repr(number)


def _openai(gauges: _Gauges, now: float) -> dict[str, str]:
    headers = {}
    for thing, gauge in gauges.items():
        headers[f"x-ratelimit-limit-{thing}"] = plain(gauge.limit)
        headers[f"x-ratelimit-remaining-{thing}"] = str(gauge.remaining)
        headers[f"x-ratelimit-reset-{thing}"] = _go(gauge.reset)
    return headers


def _azure(gauges: _Gauges, now: float) -> dict[str, str]:
    resets = {f"x-ratelimit-reset-{thing}": str(math.ceil(gauge.reset)) for thing, gauge in gauges.items()}
    return _openai(gauges, now) | resets


def _groq(gauges: _Gauges, now: float) -> dict[str, str]:
    headers = _openai(gauges, now)
    if "requests" in gauges:
        gauge = gauges["requests"]
        # Groq counts requests by the day; they come back as fast as under the limit per minute.
        limit = gauge.limit * _MINUTES_A_DAY
        headers["x-ratelimit-limit-requests"] = plain(limit)
        headers["x-ratelimit-remaining-requests"] = str(max(0, math.floor(limit - gauge.used)))
    return headers


def _mistral(gauges: _Gauges, now: float) -> dict[str, str]:
    headers = {}
    for thing, gauge in gauges.items():
        name = {"requests": "req"}.get(thing, thing)
        headers[f"x-ratelimit-limit-{name}-minute"] = plain(gauge.limit)
        headers[f"x-ratelimit-remaining-{name}-minute"] = str(gauge.remaining)
    return headers


def _anthropic(gauges: _Gauges, now: float) -> dict[str, str]:
    headers = {}
    for thing, gauge in gauges.items():
        remaining = min(round(gauge.remaining, -3), math.floor(gauge.limit)) if thing == "tokens" else gauge.remaining
        reset = datetime.fromtimestamp(math.ceil(now + gauge.reset), UTC)
        headers[f"anthropic-ratelimit-{thing}-limit"] = plain(gauge.limit)
        headers[f"anthropic-ratelimit-{thing}-remaining"] = str(remaining)
        headers[f"anthropic-ratelimit-{thing}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return headers


_WRITERS: Mapping[str, Callable[[_Gauges, float], dict[str, str]]] = {
    "openai": _openai,
    "responses": _openai,
    "anthropic": _anthropic,
    "azure": _azure,
    "groq": _groq,
    "mistral": _mistral,
}


def _go(seconds: float) -> str:
    """Write a duration as Go does, in whole milliseconds."""
    milliseconds = math.ceil(seconds * 1000 - 1e-6)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
