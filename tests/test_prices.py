"""The door to the price table: whose prices are given, and when none is."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import genai_prices
import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import ClauseEquals, ModelInfo, ModelPrice, PriceVariant, Provider, Tier, TieredPrices

from batchkit._logic.pricing import Price, cost
from batchkit.prices import price_of
from batchkit.records import Usage

ROOT = Path(__file__).parent.parent
SOURCE = f"genai-prices {genai_prices.__version__}"

# A first use that tells of any socket opened and any thread left behind.
FIRST_USE = """
import sys, threading
sockets = []
sys.addaudithook(lambda event, args: sockets.append(event) if event.startswith("socket.") else None)
from batchkit.prices import price_of

assert price_of("openai", "gpt-5", None, batch=True) is not None
assert price_of("openai", "no-such-model", None) is None
assert sockets == [], sockets
assert threading.active_count() == 1
"""


def tiered(base, *tiers):
    return TieredPrices(Decimal(base), [Tier(start, Decimal(price)) for start, price in tiers])


def model(name, variants=None, **listed):
    price = ModelPrice(**{rate: Decimal(value) if isinstance(value, str) else value for rate, value in listed.items()})
    return ModelInfo(id=name, match=ClauseEquals(name), prices=price, price_variants=variants)


HALF = [PriceVariant({"processing": "batch"}, ModelPrice(input_mtok=Decimal("0.5"), output_mtok=Decimal("2")))]
MODELS = [
    model("plain", input_mtok="1", output_mtok="4"),
    model("halved", HALF, input_mtok="1", output_mtok="4"),
    model("cached", input_mtok="1", output_mtok="4", cache_read_mtok="0.1", output_reasoning_mtok="5"),
    model(
        "tiered",
        input_mtok=tiered("1", (1_000, "2"), (5_000, "3")),
        output_mtok=tiered("4", (5_000, "8")),
        cache_read_mtok="0.1",
    ),
    model("embedding", input_mtok="0.02"),
    model("hourly", audio_hours="1"),
    model("unlisted"),
]


def bundled():
    from genai_prices.data import providers

    return providers


@pytest.fixture
def table():
    """Put a small table in the place of the real one, the same models at every vendor in it."""
    vendors = [Provider(id=name, name=name, api_pattern="", models=MODELS) for name in ("openai", "google", "azure")]
    set_custom_snapshot(DataSnapshot(providers=vendors, from_auto_update=False))
    yield
    set_custom_snapshot(None)


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("plain", Price(1.0, 4.0, source=SOURCE)),
        ("cached", Price(1.0, 4.0, 0.1, 5.0, SOURCE)),
        ("embedding", Price(0.02, 0.0, source=SOURCE)),
        (
            "tiered",
            Price(
                1.0, 4.0, 0.1, None, SOURCE,
                tiers=((1_000, Price(2.0, 4.0, 0.1, None, SOURCE)), (5_000, Price(3.0, 8.0, 0.1, None, SOURCE))),
            ),
        ),
    ],
)  # fmt: skip
def test_a_listed_price_is_read_whole(table, name, price):
    """Rates, tiers and the table's version all arrive, and what has no rate for output is not charged for it."""
    assert price_of("openai", name, None) == price


@pytest.mark.parametrize("name", ["absent", "hourly", "unlisted", ""])
def test_what_is_not_listed_by_tokens_is_unknown(table, name):
    """A model that is not in the table, or not sold by tokens, has no known price."""
    assert price_of("openai", name, None) is None


def test_batches_have_their_own_price_or_an_unknown_one(table):
    """The price of native batches is the listed one, never the standard price in its place."""
    assert price_of("openai", "halved", None, batch=True) == Price(0.5, 2.0, source=SOURCE)
    assert price_of("openai", "halved", None) == Price(1.0, 4.0, source=SOURCE)
    assert price_of("openai", "plain", None, batch=True) is None
    assert price_of("openai", "absent", None, batch=True) is None


@pytest.mark.parametrize(
    ("vendor", "base_url", "is_known"),
    [
        ("openai", None, True),
        ("openai", "https://api.openai.com/v1", True),
        ("openai", "https://API.OpenAI.com", True),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta", True),
        ("azure", "https://my-resource.openai.azure.com/openai/v1", True),
        ("openai-compatible", "https://api.openai.com/v1", True),
        ("openai-compatible", "https://generativelanguage.googleapis.com/v1beta/openai", True),
        ("openai", "http://127.0.0.1:8123/v1", False),
        ("openai", "http://localhost:8000", False),
        ("openai", "https://proxy.example/api.openai.com/v1", False),
        ("openai", "https://api.openai.com.example/v1", False),
        ("openai", "https://eu.api.openai.com/v1", False),
        ("openai", "https://generativelanguage.googleapis.com/v1beta", False),
        ("azure", "https://not-openai.azure.com/openai/v1", False),
        ("azure", "https://gateway.example/openai/v1", False),
        ("openai-compatible", "https://llm.example/v1", False),
        ("openai-compatible", "http://localhost:11434/v1", False),
        ("openai-compatible", None, False),
        ("ollama", None, False),
        ("ollama", "http://localhost:11434", False),
        ("vllm", None, False),
        ("google", None, False),
    ],
)
def test_a_price_is_the_vendors_own(table, vendor, base_url, is_known):
    """Only at the vendor's own address does the vendor's price hold; everywhere else it is unknown."""
    assert (price_of(vendor, "plain", base_url) is not None) is is_known


@pytest.mark.parametrize(
    ("vendor", "base_url"),
    [
        ("openai", "https://api.openai.com/v1"),
        ("openai-decisions", "https://api.openai.com/v1"),
        ("anthropic", "https://api.anthropic.com"),
        ("gemini", "https://generativelanguage.googleapis.com"),
        ("groq", "https://api.groq.com/openai/v1"),
        ("mistral", "https://api.mistral.ai/v1"),
        ("deepseek", "https://api.deepseek.com/v1"),
        ("together", "https://api.together.xyz/v1"),
        ("together", "https://api.together.ai/v1"),
        ("openrouter", "https://openrouter.ai/api/v1"),
        ("azure", "https://my-resource.openai.azure.com/openai/v1"),
    ],
)
def test_every_vendor_we_name_is_in_the_table(vendor, base_url):
    """The table knows each of our vendors, and lists models of it that can be priced at its own address."""
    listed_as = {"gemini": "google"}.get(vendor, vendor)
    seller = next(found for found in bundled() if found.id == listed_as)
    assert any(price_of(vendor, sold.id, base_url) is not None for sold in seller.models)


@pytest.mark.parametrize("vendor", ["openai", "anthropic", "groq", "mistral"])
@pytest.mark.parametrize("usage", [Usage(900, 70, 100), Usage(150_000, 3_000, 1_000), Usage(300_000, 1, 300_000)])
def test_costs_agree_with_those_of_the_table(vendor, usage):
    """For every model that is priced, our arithmetic comes to what genai-prices itself calculates."""
    counted = genai_prices.Usage(input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=usage.cached)
    names = {sold.id for seller in bundled() if seller.id == vendor for sold in seller.models}
    priced = {name: price for name in sorted(names) if (price := price_of(vendor, name, None)) is not None}
    assert len(priced) > 5
    ours = {name: cost(usage, price) for name, price in priced.items()}
    theirs = {name: float(genai_prices.calc_price(counted, name, provider_id=vendor).total_price) for name in priced}
    assert ours == pytest.approx(theirs)


def test_the_first_use_needs_no_network():
    """The table is read from the installed package: no socket, no thread, no warning."""
    command = [sys.executable, "-W", "error", "-c", FIRST_USE]
    probe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert probe.returncode == 0, probe.stderr
