"""Each vendor's headers about limits are written as it writes them, and mean what the buckets hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects.ratelimits import Allowance, read_allowances
from batchkit._playground.faults import Bucket, Gauge
from batchkit._playground.limits import limit_headers, plain

NOW = 1_796_000_000.25  # 2026-11-30T00:53:20.25Z
DAY = 86_400.0
GAUGES = {"requests": Gauge(600, 1, 0.1, False), "tokens": Gauge(2_000_000, 12_345.5, 0.370365, False)}


@pytest.mark.parametrize(
    ("speaker", "headers"),
    [
        (
            "openai",
            {
                "x-ratelimit-limit-requests": "600",
                "x-ratelimit-remaining-requests": "599",
                "x-ratelimit-reset-requests": "100ms",
                "x-ratelimit-limit-tokens": "2000000",
                "x-ratelimit-remaining-tokens": "1987654",
                "x-ratelimit-reset-tokens": "371ms",
            },
        ),
        (
            "anthropic",
            {
                "anthropic-ratelimit-requests-limit": "600",
                "anthropic-ratelimit-requests-remaining": "599",
                "anthropic-ratelimit-requests-reset": "2026-11-30T00:53:21Z",
                "anthropic-ratelimit-tokens-limit": "2000000",
                "anthropic-ratelimit-tokens-remaining": "1988000",
                "anthropic-ratelimit-tokens-reset": "2026-11-30T00:53:21Z",
            },
        ),
        (
            "azure",
            {
                "x-ratelimit-limit-requests": "600",
                "x-ratelimit-remaining-requests": "599",
                "x-ratelimit-reset-requests": "1",
                "x-ratelimit-limit-tokens": "2000000",
                "x-ratelimit-remaining-tokens": "1987654",
                "x-ratelimit-reset-tokens": "1",
            },
        ),
        (
            "groq",
            {
                "x-ratelimit-limit-requests": "864000",
                "x-ratelimit-remaining-requests": "863999",
                "x-ratelimit-reset-requests": "100ms",
                "x-ratelimit-limit-tokens": "2000000",
                "x-ratelimit-remaining-tokens": "1987654",
                "x-ratelimit-reset-tokens": "371ms",
            },
        ),
        (
            "mistral",
            {
                "x-ratelimit-limit-req-minute": "600",
                "x-ratelimit-remaining-req-minute": "599",
                "x-ratelimit-limit-tokens-minute": "2000000",
                "x-ratelimit-remaining-tokens-minute": "1987654",
            },
        ),
        ("gemini", {}),
        ("ollama", {}),
        ("together", {}),
    ],
)
def test_every_vendor_has_its_own_headers(speaker, headers):
    """Names and formats are the vendor's own."""
    assert limit_headers(speaker, GAUGES, NOW) == headers
    assert limit_headers(speaker, {}, NOW) == {}


def test_responses_are_announced_as_chat_completions():
    """OpenAI's two endpoints have the same headers."""
    assert limit_headers("responses", GAUGES, NOW) == limit_headers("openai", GAUGES, NOW)


def test_groq_has_no_day_without_requests():
    """Without a limit on requests Groq tells of tokens alone."""
    tokens = {"tokens": GAUGES["tokens"]}
    assert limit_headers("groq", tokens, NOW) == limit_headers("openai", tokens, NOW)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0121, "13ms"), (1, "1s"), (8.64, "8.64s"), (60, "1m0s"), (360, "6m0s"), (3723.5, "1h2m3.5s")],
)
def test_times_are_written_as_go_does(seconds, text):
    """A reset is a duration in whole milliseconds, as OpenAI sends it."""
    headers = limit_headers("openai", {"requests": Gauge(60, 1, seconds, False)}, NOW)
    assert headers["x-ratelimit-reset-requests"] == text


@pytest.mark.parametrize(("number", "text"), [(600, "600"), (600.0, "600"), (2e15, "2000000000000000"), (0.5, "0.5")])
def test_numbers_are_written_plainly(number, text):
    """Whole numbers have no point, and none has an exponent."""
    assert plain(number) == text


def test_anthropic_never_has_more_left_than_there_is():
    """What is rounded to thousands does not become more than the limit."""
    headers = limit_headers("anthropic", {"tokens": Gauge(1_700, 0, 0.0, False)}, NOW)
    assert headers["anthropic-ratelimit-tokens-remaining"] == "1700"


@pytest.mark.parametrize(("speaker", "per", "window"), [("openai", 1, 60.0), ("azure", 1, 60.0), ("groq", 1_440, DAY)])
@given(st.integers(1, 30_000), st.lists(st.floats(0, 2), min_size=1, max_size=30))
def test_what_is_announced_is_understood(speaker, per, window, rpm, gaps):
    """The headers of a bucket read as its limit, and waiting as they say is enough."""
    bucket = Bucket(rpm, 0.0)
    now = 0.0
    for gap in gaps:
        now += gap
        bucket.take(now)
        told = read_allowances(limit_headers(speaker, {"requests": bucket.read(now)}, NOW), NOW)
        assert told is not None
        assert isinstance(told.requests, Allowance)
        assert told.requests.limit == rpm * per
        # A day's bucket that is nearly full cannot be told from a minute's.
        assert told.requests.window in (window, 60.0)
        if not told.requests.remaining:
            assert bucket.take(now + told.wait() + 1e-3) == 0.0
            now += told.wait() + 1e-3
