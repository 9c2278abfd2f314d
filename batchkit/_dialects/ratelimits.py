"""What a provider's response headers say about its rate limits: one reader for all vendors.

The names differ from vendor to vendor and compatible servers mix them freely, so a header is
understood by the words in its name. A name with a word nobody knows is passed over: a limit that
is missed is met as HTTP 429, one that is made up slows a run down and nobody would know why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from batchkit._dialects.base import sent_at

__all__ = ["Allowance", "Allowances", "read_allowances"]

_MINUTE = 60.0
_DAY = 86_400.0
_MOST = 1e12
"""More than any limit; servers without one write such numbers."""
_LONGEST = 32 * _DAY
_LONGEST_TEXT = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Allowance(NamedTuple):
    """What may be used of one thing that a provider counts, as one reply told it.

    Limits are buckets that refill all the time, not windows that end (OpenAI and Anthropic, rate
    limits guides), so ``remaining`` above 0 is never a reason to wait for ``reset``.

    Examples
    --------
    >>> Allowance(limit=5_000, remaining=0, reset=60.0).wait()
    0.012
    >>> Allowance(limit=10, remaining=4, window=1.0).per_minute
    600.0
    """

    limit: float | None = None
    """The most within ``window``; above 0."""
    remaining: float | None = None
    """How much of it may go at once; 0 or more, not above ``limit``. Anthropic rounds tokens to thousands."""
    reset: float | None = None
    """Seconds until all of ``limit`` may go again, counted from the reply."""
    window: float | None = _MINUTE
    """Seconds that ``limit`` is for; ``None`` where the headers leave that open."""

    @property
    def per_minute(self) -> float | None:
        """The limit as one per minute.

        ``None`` where it is not known, and where the limit is of a longer time: a day's worth may
        go in an hour, so nothing follows from it for a minute.
        """
        if self.limit is None or self.window is None or self.window > _MINUTE:
            return None
        return self.limit * (_MINUTE / self.window)

    def wait(self, amount: float = 1.0) -> float:
        """Seconds from the reply until ``amount`` may go; 0.0 where it may go now, or nothing speaks against it.

        Where the window is not known it may be one that ends: then all of ``reset``.
        """
        if self.remaining is None or self.remaining >= amount:
            return 0.0
        if self.limit is None or self.window is None:
            return self.reset or 0.0
        missing = min(amount, self.limit) - self.remaining
        refilled = missing * self.window / self.limit
        return refilled if self.reset is None else min(refilled, self.reset)


class Allowances(NamedTuple):
    """What may be used of all that a provider counts; ``None`` for what a reply did not tell.

    Examples
    --------
    >>> told = Allowances(input_tokens=Allowance(50_000), output_tokens=Allowance(10_000))
    >>> told.tokens_per_minute(), told.tokens_per_minute(input_share=0.75)
    (10000.0, 40000.0)
    """

    requests: Allowance | None = None
    tokens: Allowance | None = None
    """Input and output together."""
    input_tokens: Allowance | None = None
    output_tokens: Allowance | None = None

    @property
    def requests_per_minute(self) -> float | None:
        """The limit on requests as one per minute, where there is one of a minute or less."""
        return None if self.requests is None else self.requests.per_minute

    def tokens_per_minute(self, input_share: float | None = None) -> float | None:
        """Return one budget for input and output together that keeps to every limit on tokens.

        Anthropic limits input and output apart, and by the cap on output before it is written
        (Anthropic, rate limits). Who counts both in one budget keeps to each as long as the
        budget is no larger than the smaller of the two, which is what this gives when it is told
        no share. Label requests are nearly all input, so that may be several times too strict:
        with the share of input in what is reserved for a request (its cap counted as output) the
        budget is as large as the stricter of the two allows for requests of that mix. A run whose
        requests are mixed takes the smallest budget, of the largest and of the smallest share.

        Parameters
        ----------
        input_share : float, optional
            Input tokens of a request by all that are reserved for it, from 0 to 1.

        Returns
        -------
        float or None
            Tokens per minute; ``None`` where no limit on them is known.
        """
        shares = (1.0, 1.0, 1.0) if input_share is None else (1.0, input_share, 1.0 - input_share)
        limits = [
            allowance.per_minute / share
            for allowance, share in zip((self.tokens, self.input_tokens, self.output_tokens), shares, strict=True)
            if share > 0 and allowance is not None and allowance.per_minute is not None
        ]
        return min(limits, default=None)

    def wait(self, input_tokens: float = 0.0, output_tokens: float = 0.0) -> float:
        """Seconds from the reply until one more request of so many tokens may go, by every limit told."""
        wait = 0.0 if self.requests is None else self.requests.wait()
        if self.tokens is not None:
            wait = max(wait, self.tokens.wait(input_tokens + output_tokens))
        if self.input_tokens is not None:
            wait = max(wait, self.input_tokens.wait(input_tokens))
        if self.output_tokens is not None:
            wait = max(wait, self.output_tokens.wait(output_tokens))
        return wait


def read_allowances(headers: Mapping[str, str], now: float) -> Allowances | None:
    """Read what a reply's headers say about rate limits, in any vendor's words.

    Understood are (all names in any case):

    - OpenAI (rate limits guide): ``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, also
      of a project and ``-tokens_usage_based``; resets as Go writes durations, ``6m0s``. Requests
      are per minute, or per day in low usage tiers, which is told by how fast they come back.
    - Azure: the same names, integer seconds, perhaps only ``remaining``, and -1 for nothing known;
      ``x-ratelimit-renewalperiod-requests`` where it says for how many seconds a limit is.
    - Groq (rate limits): OpenAI's names; requests per day, tokens per minute.
    - Anthropic (rate limits): ``anthropic-ratelimit-*-{limit,remaining,reset}`` of ``requests``,
      ``tokens``, ``input-tokens`` and ``output-tokens``; resets as RFC 3339 times; per minute.
    - Mistral: ``x-ratelimit-{limit,remaining}-{req,tokens}-minute``, and a month beside it;
      ``ratelimitbysize-*`` for tokens.
    - Together: ``x-ratelimit-*`` for requests and ``x-tokenlimit-*`` for tokens, in seconds. Its
      documentation calls them limits per second, and users have read them as per minute, so
      their window is left open.
    - OpenRouter (limits): ``X-RateLimit-*`` on HTTP 429, reset in epoch milliseconds; of a minute
      or of a day, which they do not say.

    Gemini, DeepSeek, Ollama, vLLM, llama.cpp and LM Studio send none.

    Of several limits on one thing in windows of one length the strictest numbers are taken. Of
    windows of different lengths that of a minute or less, unless a longer one is used up.
    Negative, endless, empty and unreadable numbers are as if they had not been sent, and so is a
    limit of 0.

    Parameters
    ----------
    headers : mapping of str to str
        The response headers.
    now : float
        Seconds since the epoch, against which resets that are given as times are read where the reply has no ``Date``.

    Returns
    -------
    Allowances or None
        ``None`` where nothing usable is said.

    Examples
    --------
    >>> told = read_allowances({"x-ratelimit-limit-requests": "5000", "x-ratelimit-remaining-requests": "4999"}, 0.0)
    >>> told.requests
    Allowance(limit=5000.0, remaining=4999.0, reset=None, window=60.0)
    >>> read_allowances({"content-type": "application/json"}, 0.0)
    """
    families = _families(tuple(headers))
    if not families:
        return None
    now = sent_at(headers, now)
    found: dict[str, Allowance] = {}
    for family in families:
        allowance = _read(family, headers, now)
        if allowance is not None:
            other = found.get(family.thing)
            found[family.thing] = allowance if other is None else _stricter(other, allowance)
    return Allowances(**found) if found else None


# ---- names ------------------------------------------------------------------------------------


class _Count(NamedTuple):
    """What a header is about, its field left aside."""

    thing: str
    """A field of `Allowances`."""
    window: float | None
    is_guess: bool
    """Whether the window is the usual one and not said."""
    scheme: str
    named: bool
    """Whether the name says what is counted."""
    scope: tuple[str, ...]


class _Family(NamedTuple):
    """The headers of one limit, under the names they came with; ``""`` for those that did not come."""

    thing: str
    window: float | None
    is_guess: bool
    limit: str
    remaining: str
    reset: str
    period: str


_NAME = re.compile(r"(anthropic-ratelimit|(?:x-)?(?:ratelimitbysize|ratelimit|tokenlimit))-(.+)")
_FIELDS = {"limit": "limit", "remaining": "remaining", "reset": "reset", "renewalperiod": "period"}
_WORDS = {
    **dict.fromkeys(("req", "request", "requests"), "requests"),
    **dict.fromkeys(("token", "tokens"), "tokens"),
    **dict.fromkeys(("input", "prompt"), "input"),
    **dict.fromkeys(("output", "completion", "generated"), "output"),
}
_THINGS: Mapping[frozenset[str], str] = {
    frozenset(): "requests",
    frozenset({"requests"}): "requests",
    frozenset({"tokens"}): "tokens",
    frozenset({"tokens", "input"}): "input_tokens",
    frozenset({"tokens", "output"}): "output_tokens",
}
_WINDOWS = {"second": 1.0, "minute": _MINUTE, "hour": 3600.0, "day": _DAY, "month": 30 * _DAY}
_SCOPES = frozenset({"account", "based", "key", "org", "organization", "project", "usage", "user", "workspace"})
"""Whose limit it is. For the one who asks it is a limit all the same."""


# The names that a provider sends hardly ever change, so all that depends on them alone is done once.
@lru_cache(maxsize=128)
def _families(names: tuple[str, ...]) -> tuple[_Family, ...]:
    told: dict[_Count, dict[str, str]] = {}
    for name in names:
        match = _NAME.fullmatch(name.lower())
        understood = _understand(match[1].removeprefix("x-"), re.split("[-_]", match[2])) if match else None
        if understood is not None:
            count, field = understood
            told.setdefault(count, {}).setdefault(field, name)
    # Who has an unnamed limit beside it (Together) may count its tokens over another time as well.
    is_open = any(not count.named for count in told)
    return tuple(
        _Family(
            count.thing,
            None if count.is_guess and is_open else count.window,
            count.is_guess,
            *(fields.get(field, "") for field in ("limit", "remaining", "reset", "period")),
        )
        for count, fields in told.items()
    )


def _understand(scheme: str, words: list[str]) -> tuple[_Count, str] | None:
    """Say what a header counts, and which of its numbers it gives."""
    fields = [_FIELDS[word] for word in words if word in _FIELDS]
    windows = [_WINDOWS[word] for word in words if word in _WINDOWS]
    scope = tuple(word for word in words if word in _SCOPES)
    kinds = [_WORDS[word] for word in words if word in _WORDS]
    if len(fields) != 1 or len(windows) > 1 or len(fields + windows + kinds) + len(scope) < len(words):
        return None
    named = bool(kinds) or scheme != "ratelimit"
    if scheme in ("tokenlimit", "ratelimitbysize"):
        kinds.append("tokens")
    thing = _THINGS.get(frozenset(kinds))
    if thing is None or (not kinds and scheme != "ratelimit"):
        return None
    is_guess = not windows and scheme == "ratelimit" and kinds in (["requests"], ["tokens"])
    usual = _MINUTE if is_guess or scheme in ("anthropic-ratelimit", "ratelimitbysize") else None
    return _Count(thing, windows[0] if windows else usual, is_guess, scheme, named, scope), fields[0]


# ---- numbers ----------------------------------------------------------------------------------

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|us|µs|μs|ns|h|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_ENDS_OF_SPANS = "smh"
_FIRST_MOMENT, _LAST_MOMENT = 1e9, 1e13
"""Numbers between these are times since the epoch: in seconds, and from a hundred times the first in milliseconds."""


def _read(family: _Family, headers: Mapping[str, str], now: float) -> Allowance | None:
    limit = (_number(headers.get(family.limit), _MOST) or None) if family.limit else None
    remaining = _number(headers.get(family.remaining), _MOST) if family.remaining else None
    if limit is None and remaining is None:
        return None
    if limit is not None and remaining is not None and remaining > limit:
        remaining = limit
    text = headers.get(family.reset) if family.reset else None
    reset = _reset(text, now) if text else None
    period = _number(headers.get(family.period), _LONGEST) if family.period else None
    window = family.window
    if period is not None and period >= 1:
        window = period
    elif family.is_guess and text and reset is not None:
        window = _likely_window(family, limit, remaining, reset, text)
    # A machine's clock may be wrong; a bucket is full after its window.
    if text and reset is not None and window is not None and reset > window and "-" in text:
        reset = window
    return Allowance(limit, remaining, reset, window)


def _reset(text: str, now: float) -> float | None:
    """Read when a limit is full again: a number, a duration or a time."""
    if text[-1] in _ENDS_OF_SPANS:
        seconds = _span(text)
    elif "-" in text:
        seconds = _moment(text, now)
    else:
        seconds = _number(text, _LAST_MOMENT)
        if seconds is not None and seconds >= _FIRST_MOMENT:
            seconds = max(0.0, (seconds / 1000 if seconds >= 100 * _FIRST_MOMENT else seconds) - now)
    return seconds if seconds is not None and seconds <= _LONGEST else None


def _likely_window(
    family: _Family, limit: float | None, remaining: float | None, reset: float, text: str
) -> float | None:
    """Correct the guess that a limit is per minute, where the reset gives it away."""
    if text[-1] not in _ENDS_OF_SPANS:
        return None if reset > 2 * _MINUTE else family.window
    if family.thing != "requests" or limit is None or remaining is None:
        return family.window
    return _DAY if _is_of_a_day(limit, limit - remaining, reset) else family.window


def _is_of_a_day(limit: float, spent: float, reset: float) -> bool:
    """Say whether what was spent comes back as slowly as under a limit per day.

    In a bucket of a day ``spent / limit`` of a day passes until it is full. What comes back is
    told in whole requests, so half of one day is the least that this comes out at; anything
    else (OpenAI's guide itself shows 6m0s beside 16 tokens of 150,000) says nothing.
    """
    if spent < 1:
        return False
    least = reset - 1 if reset == int(reset) else reset  # Whole seconds may have been rounded up.
    return least * limit >= 0.4 * _DAY * spent and reset * limit <= 1.1 * _DAY * spent


def _number(text: str | None, most: float) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    # Not true of NaN either.
    return number if 0 <= number <= most else None


def _span(text: str) -> float | None:
    """Read a duration as Go writes it."""
    if text.endswith("ms"):  # Most are, of those that are read after each reply.
        milliseconds = _number(text[:-2], _MOST)
        if milliseconds is not None:
            return milliseconds / 1000
    if len(text) > _LONGEST_TEXT:
        return None
    parts = _PART.findall(text)
    if not parts or "".join([number + unit for number, unit in parts]) != text:
        return None
    return sum([float(number) * _UNITS[unit] for number, unit in parts])


def _moment(text: str, now: float) -> float | None:
    """Read an RFC 3339 time as seconds from ``now``."""
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - _EPOCH).total_seconds() - now)
    except (ValueError, OverflowError):
        return None


# ---- several limits on one thing --------------------------------------------------------------


def _stricter(one: Allowance, other: Allowance) -> Allowance:
    if one.window == other.window:
        resets = [reset for reset in (one.reset, other.reset) if reset is not None]
        return Allowance(
            _least(one.limit, other.limit),
            _least(one.remaining, other.remaining),
            max(resets, default=None),
            one.window,
        )
    return max(one, other, key=_urgency)


def _least(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _urgency(allowance: Allowance) -> tuple[float, bool, float]:
    """Order limits: the one that has to be waited for longest, else of a minute or less, else the shortest."""
    per_minute, window = allowance.per_minute, allowance.window
    return (
        allowance.wait() if allowance.remaining == 0 else 0.0,
        per_minute is not None,
        -(per_minute or window or _LONGEST),
    )
