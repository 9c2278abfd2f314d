"""The door to the price table that comes with genai-prices: what a vendor asks for a model, offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from batchkit._logic.pricing import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice, TieredPrices

__all__ = ["price_of"]


@dataclass(frozen=True, slots=True)
class _Seller:
    listed_as: str
    """Its name in the table."""
    hosts: tuple[str, ...]
    """Where it sells at the listed price; a dot in front stands for any subdomain."""


# Regional hosts are left out on purpose: OpenAI's, for one, cost a tenth more, which the table does not say.
_SELLERS: Mapping[str, _Seller] = {
    "openai": _Seller("openai", ("api.openai.com",)),
    "openai-decisions": _Seller("openai-decisions", ("api.openai.com",)),
    "anthropic": _Seller("anthropic", ("api.anthropic.com",)),
    "gemini": _Seller("google", ("generativelanguage.googleapis.com",)),
    "groq": _Seller("groq", ("api.groq.com",)),
    "mistral": _Seller("mistral", ("api.mistral.ai",)),
    "deepseek": _Seller("deepseek", ("api.deepseek.com",)),
    "together": _Seller("together", ("api.together.ai", "api.together.xyz")),
    "openrouter": _Seller("openrouter", ("openrouter.ai",)),
    "azure": _Seller("azure", (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")),
}


def price_of(vendor: str, model: str, base_url: str | None, *, batch: bool = False) -> Price | None:
    """Look up what a vendor asks for a model at this moment.

    The first call imports genai-prices, which takes about a fifth of a second; it never downloads
    anything.

    Parameters
    ----------
    vendor : str
        As in the profiles; ``"openai-decisions"`` for OpenAI's decisions endpoint. For
        ``"openai-compatible"`` the address says who the vendor is.
    model : str
        As the vendor names it.
    base_url : str or None
        Where the model is asked; ``None``: at the vendor's own address. At any other (a proxy, a
        server on this machine) the vendor's price means nothing.
    batch : bool
        The price in the vendor's native batches.

    Returns
    -------
    Price or None
        ``None``: unknown.

    Examples
    --------
    >>> price_of("openai", "gpt-6-luna", "http://localhost:8000/v1") is None
    True
    """
    seller = _seller(vendor, base_url)
    if seller is None:
        return None
    from genai_prices import Usage, __version__, calc_price

    def listed(**context: str) -> ModelPrice:
        return calc_price(Usage(), model, provider_id=seller, price_context=context).model_price

    try:
        price = listed(processing="batch") if batch else listed()
        # Where the table lists nothing for batches it gives the usual price, which is hardly right.
        is_guess = batch and price == listed()
    except LookupError:
        return None
    return None if is_guess else _read(price, f"genai-prices {__version__}")


def _seller(vendor: str, base_url: str | None) -> str | None:
    own = _SELLERS.get(vendor)
    if base_url is None:
        return None if own is None else own.listed_as
    host = urlsplit(base_url).hostname or ""
    asked = _SELLERS.values() if vendor == "openai-compatible" else [own] if own else []
    return next((seller.listed_as for seller in asked if _sells_at(seller, host)), None)


def _sells_at(seller: _Seller, host: str) -> bool:
    return any(host.endswith(name) if name.startswith(".") else host == name for name in seller.hosts)


def _read(listed: ModelPrice, source: str) -> Price | None:
    if listed.input_mtok is None:  # sold by the hour or the page, or listed without any price
        return None
    rates = (listed.input_mtok, listed.output_mtok, listed.cache_read_mtok, listed.output_reasoning_mtok)
    tiered = [rate for rate in rates if rate is not None and not isinstance(rate, Decimal)]
    starts = sorted({tier.start for rate in tiered for tier in rate.tiers})
    tiers = tuple((start, _flat(rates, start + 1, source)) for start in starts)
    return replace(_flat(rates, 0, source), tiers=tiers)


def _flat(rates: tuple[Decimal | TieredPrices | None, ...], tokens_in: int, source: str) -> Price:
    asked, answered, cached, reasoning = (_rate(rate, tokens_in) for rate in rates)
    # What has no rate for output is not charged for it: embeddings, decisions.
    return Price(asked or 0.0, answered or 0.0, cached, reasoning, source)


def _rate(listed: Decimal | TieredPrices | None, tokens_in: int) -> float | None:
    if listed is None or isinstance(listed, Decimal):
        return None if listed is None else float(listed)
    reached = [tier.price for tier in listed.tiers if tokens_in > tier.start]
    return float(reached[-1] if reached else listed.base)
