"""What requests cost, and whether the next one may still be paid for. Arithmetic only: prices are handed in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from batchkit.errors import ConfigError, nearest
from batchkit.records import Completion, Failure, Usage

__all__ = [
    "TOKENS_PER_BYTE",
    "Budget",
    "Price",
    "Tally",
    "cost",
    "cost_of",
    "dollars",
    "estimate_tokens",
    "learn",
    "read_price",
    "reserve",
]

TOKENS_PER_BYTE = 1 / 4
"""English prose; code and Chinese have about 1/3."""

_MILLION = 1_000_000
_RATES = ("input", "output", "cached", "reasoning")
_FORMS = (
    "Give (input, output) in USD per million tokens, such as (0.1, 0.5), "
    "or a dict with input and output, and cached and reasoning where they differ from these."
)


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in USD per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Input that the provider had in its cache; ``None``: as ``input``."""
    reasoning: float | None = None
    """Output that was thinking; ``None``: as ``output``."""
    source: str = "user"
    """Who says so."""
    tiers: tuple[tuple[int, Price], ...] = ()
    """(tokens, price) pairs, ascending: a request with more input than that has this price for all its tokens."""

    def at(self, tokens_in: float) -> Price:
        """Return the price of a request with so many input tokens."""
        for start, price in reversed(self.tiers):
            if tokens_in > start:
                return price
        return self


def read_price(given: object) -> Price:
    """Read a price as users give it.

    Parameters
    ----------
    given : tuple or mapping
        ``(input, output)``, or a mapping with ``input``, ``output`` and, where they differ,
        ``cached`` and ``reasoning``; all in USD per million tokens.

    Raises
    ------
    ConfigError
        It is anything else, has an unknown rate, or a rate that is no number of at least 0.

    Examples
    --------
    >>> read_price((0.1, 0.5))
    Price(input=0.1, output=0.5, cached=None, reasoning=None, source='user', tiers=())
    """
    rates = {name: _checked_rate(given, name, rate) for name, rate in _rates(given).items()}
    return Price(rates["input"], rates["output"], rates.get("cached"), rates.get("reasoning"))


def _rates(given: object) -> dict[str, Any]:
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return {"input": given[0], "output": given[1]}
    if not isinstance(given, Mapping):
        raise ConfigError(f"price={given!r} is no price. {_FORMS}")
    for name in given:
        if name not in _RATES:
            raise ConfigError(f"price={given!r}: there is no rate {name!r}. {nearest(name, _RATES)}")
    for name in ("input", "output"):
        if name not in given:
            raise ConfigError(f"price={given!r} lacks {name!r}. {_FORMS}")
    return {name: rate for name, rate in given.items() if rate is not None or name in ("input", "output")}


def _checked_rate(given: object, name: str, rate: Any) -> float:
    is_number = not isinstance(rate, bool) and isinstance(rate, Real)
    if not is_number or not 0 <= rate <= sys.float_info.max:
        raise ConfigError(f"price={given!r}: {name}={rate!r} must be a number of at least 0, USD per million tokens.")
    return float(rate)


def cost(usage: Usage, price: Price | None) -> float | None:
    """Return what a reply cost in USD, or None where that is unknown.

    It is unknown without a price, and where the server counted no input: no request is without.

    Examples
    --------
    >>> cost(Usage(input=1_000_000, output=10_000), Price(0.1, 0.5))
    0.105
    """
    if price is None or (not usage.input and reserve(1, 1, price)):
        return None
    rate = price.at(usage.input)
    cached = rate.input if rate.cached is None else rate.cached
    reasoning = rate.output if rate.reasoning is None else rate.reasoning
    sent = max(0, usage.input - usage.cached) * rate.input + usage.cached * cached
    received = max(0, usage.output - usage.reasoning) * rate.output + usage.reasoning * reasoning
    return (sent + received) / _MILLION


def cost_of(result: Completion | Failure, price: Price | None) -> float | None:
    """Return what an attempt cost in USD, or None where that is unknown.

    A request that was refused, or never arrived, cost nothing; one whose reply did not arrive may have cost something.
    """
    if isinstance(result, Failure):
        free = result.unreached or (result.status is not None and result.status != 200)
        return 0.0 if price is not None and free else None
    return cost(result.usage, price)


def reserve(tokens_in: float, cap: int, price: Price) -> float:
    """Return what a request may cost at most, in USD: ``tokens_in`` of input, ``cap`` of output."""
    rate = price.at(tokens_in)
    return (tokens_in * max(rate.input, rate.cached or 0.0) + cap * max(rate.output, rate.reasoning or 0.0)) / _MILLION


class Tally:
    """What requests cost together, as far as it is known.

    Attributes
    ----------
    is_partial : bool
        Some of them had no known cost.

    Examples
    --------
    >>> tally = Tally()
    >>> tally.add(0.0123)
    >>> print(tally)
    $0.0123
    >>> tally.add(None)
    >>> print(tally)
    $0.0123 and some unknown
    """

    __slots__ = ("_sum", "is_partial")

    def __init__(self) -> None:
        self._sum = 0.0
        self.is_partial = False

    def __repr__(self) -> str:
        return f"Tally({self})"

    def __str__(self) -> str:
        if self.usd is None:
            return "price unknown"
        return dollars(self.usd) + (" and some unknown" if self.is_partial else "")

    @property
    def usd(self) -> float | None:
        """USD of the requests whose cost is known; ``None`` where that would say nothing."""
        return None if self.is_partial and not self._sum else self._sum

    def add(self, amount: float | None) -> None:
        """Add the cost of a request in USD; ``None``: unknown."""
        if amount is None:
            self.is_partial = True
        else:
            self._sum += amount


def dollars(amount: float) -> str:
    """Write an amount of USD so that a small one does not look like nothing.

    Examples
    --------
    >>> dollars(0.0123), dollars(1234.5), dollars(0.00001), dollars(0)
    ('$0.0123', '$1,234.50', 'under $0.0001', '$0')
    """
    if amount <= 0:
        return "$0"
    if amount < 0.00005:
        return "under $0.0001"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def estimate_tokens(text_bytes: int, ratio: float = TOKENS_PER_BYTE) -> float:
    """Return how many tokens a text of so many UTF-8 bytes probably has."""
    return text_bytes * ratio


def learn(pairs: Iterable[tuple[int, int]]) -> float:
    """Return the tokens per byte of a pilot's requests, for `estimate_tokens`.

    Parameters
    ----------
    pairs : iterable of (int, int)
        UTF-8 bytes of all text in a request, and the input tokens counted for it; 0 tokens where
        the server counted none. Without any that was counted, the usual ratio stays.
    """
    counted = [(size, tokens) for size, tokens in pairs if tokens > 0 and size > 0]
    if not counted:
        return TOKENS_PER_BYTE
    return sum(tokens for _, tokens in counted) / sum(size for size, _ in counted)


class Budget:
    """Money for a run: what is spent and what requests in flight may cost at most stay within ``max_cost``.

    Only a reply that costs more than was reserved for it can lead beyond.

    Parameters
    ----------
    max_cost : float
        USD.
    spent : float
        How much of it is gone already.

    Attributes
    ----------
    spent, reserved : float
        USD of finished requests, and of those in flight.
    """

    __slots__ = ("max_cost", "reserved", "spent")

    def __init__(self, max_cost: float, spent: float = 0.0) -> None:
        self.max_cost = max_cost
        self.spent = spent
        self.reserved = 0.0

    def __repr__(self) -> str:
        return f"Budget({dollars(self.spent)} spent, {dollars(self.reserved)} reserved of {dollars(self.max_cost)})"

    def may_send(self, amount: float) -> bool:
        """Say whether a request that may cost ``amount`` can go now."""
        # A sum of floats may miss the amount it should hit by a hair.
        return self.spent + self.reserved + amount <= self.max_cost * (1 + 1e-9)

    def take(self, amount: float) -> None:
        """Reserve ``amount`` for a request that goes."""
        self.reserved += amount

    def settle(self, amount: float, actual: float | None) -> None:
        """Replace the reserve by what the request cost; where that is unknown (None), the reserve counts as spent."""
        self.reserved = max(0.0, self.reserved - amount)
        self.spent += amount if actual is None else actual
