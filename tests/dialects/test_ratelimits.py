"""What response headers say about rate limits is read in every vendor's words, and nonsense is passed over."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from batchkit._dialects.ratelimits import Allowance, Allowances, read_allowances

NOW = 1_796_000_000.0  # 2026-11-30T00:53:20Z
DAY = 86_400.0


def openai(kind="requests", **fields):
    """Write OpenAI's headers for one thing."""
    return {f"x-ratelimit-{field}-{kind}": text for field, text in fields.items()}


def anthropic(kind, **fields):
    """Write Anthropic's headers for one thing."""
    return {f"anthropic-ratelimit-{kind}-{field}": text for field, text in fields.items()}


def read(headers):
    """Read headers as they come from aiohttp."""
    return read_allowances(CIMultiDictProxy(CIMultiDict(headers)), NOW)


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        pytest.param(
            {
                **openai(limit="5000", remaining="4999", reset="12ms"),
                **openai("tokens", limit="160000", remaining="158866", reset="425ms"),
            },
            Allowances(Allowance(5000, 4999, 0.012), Allowance(160_000, 158_866, 0.425)),
            id="openai",
        ),
        pytest.param(
            {
                **openai(limit="60", remaining="59", reset="1s"),
                **openai("tokens", limit="150000", remaining="149984", reset="6m0s"),
            },
            Allowances(Allowance(60, 59, 1.0), Allowance(150_000, 149_984, 360.0)),
            id="openai, as in its guide",
        ),
        pytest.param(
            openai(limit="10000", remaining="9999", reset="8.64s"),
            Allowances(Allowance(10_000, 9_999, 8.64, DAY)),
            id="openai, low tier: per day",
        ),
        pytest.param(
            openai(limit="10000", remaining="8030", reset="4h43m36.314s"),
            Allowances(Allowance(10_000, 8_030, 17_016.314, DAY)),
            id="openai, low tier in the middle of a day",
        ),
        pytest.param(
            {
                **openai("tokens", limit="40000", remaining="39929", reset="106ms"),
                **openai("tokens_usage_based", limit="30000", remaining="29929", reset="142ms"),
            },
            Allowances(tokens=Allowance(30_000, 29_929, 0.142)),
            id="openai, usage based",
        ),
        pytest.param(
            {
                **openai("tokens", limit="40000", remaining="500", reset="59.25s"),
                **openai("project-tokens", limit="60000", remaining="20500", reset="39.5s"),
            },
            Allowances(tokens=Allowance(40_000, 500, 59.25)),
            id="openai, of a project",
        ),
        pytest.param(
            {**openai(remaining="199"), **openai("tokens", remaining="0", reset="7")},
            Allowances(Allowance(None, 199), Allowance(None, 0, 7.0)),
            id="azure, integer seconds",
        ),
        pytest.param(
            {**openai(limit="-1", remaining="-1", reset="0"), **openai("tokens", remaining="-1", reset="-1")},
            None,
            id="azure, responses",
        ),
        pytest.param(
            openai(limit="20000", remaining="19999", reset="3", renewalperiod="60"),
            Allowances(Allowance(20_000, 19_999, 3.0)),
            id="azure, with its period",
        ),
        pytest.param(
            openai(limit="50", remaining="49", reset="9", renewalperiod="10"),
            Allowances(Allowance(50, 49, 9.0, 10.0)),
            id="azure, with a period of its own",
        ),
        pytest.param(
            {
                **openai(limit="14400", remaining="14370", reset="2m59.56s"),
                **openai("tokens", limit="18000", remaining="17997", reset="7.66s"),
            },
            Allowances(Allowance(14_400, 14_370, 179.56, DAY), Allowance(18_000, 17_997, 7.66)),
            id="groq",
        ),
        pytest.param(
            openai(limit="14400", remaining="14399", reset="6s"),
            Allowances(Allowance(14_400, 14_399, 6.0, DAY)),
            id="groq, whole seconds",
        ),
        pytest.param(
            {
                **anthropic("requests", limit="50", remaining="49", reset="2026-11-30T00:53:22Z"),
                **anthropic("tokens", limit="60000", remaining="59000", reset="2026-11-30T00:53:21Z"),
                **anthropic("input-tokens", limit="50000", remaining="50000", reset="2026-11-30T00:53:20Z"),
                **anthropic("output-tokens", limit="10000", remaining="9000", reset="2026-11-30T00:53:26Z"),
                "retry-after": "3",
            },
            Allowances(
                Allowance(50, 49, 2.0),
                Allowance(60_000, 59_000, 1.0),
                Allowance(50_000, 50_000, 0.0),
                Allowance(10_000, 9_000, 6.0),
            ),
            id="anthropic",
        ),
        pytest.param(
            {
                **anthropic("tokens", limit="60000", remaining="60000", reset="2026-11-30T00:53:20.5+00:00"),
                **anthropic("workspace-tokens", limit="30000", remaining="29000", reset="2026-11-30T01:53:22+01:00"),
                "anthropic-ratelimit-unified-status": "allowed",
                "anthropic-ratelimit-unified-reset": "1796003600",
                **{f"anthropic-priority-input-tokens-{field}": "1" for field in ("limit", "remaining")},
            },
            Allowances(tokens=Allowance(30_000, 29_000, 2.0)),
            id="anthropic, variants",
        ),
        pytest.param(
            anthropic("requests", limit="50", remaining="0", reset="2026-11-30T01:53:20Z"),
            Allowances(Allowance(50, 0, 60.0)),
            id="anthropic, where the clock here is slow",
        ),
        pytest.param(
            {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "9", "x-ratelimit-reset": "1"},
            Allowances(Allowance(10, 9, 1.0, None)),
            id="together",
        ),
        pytest.param(
            {
                "x-ratelimit-limit": "10",
                "x-ratelimit-remaining": "9",
                "x-ratelimit-limit-dynamic": "1",
                "x-tokenlimit-limit": "3000",
                "x-tokenlimit-remaining": "2900",
                "x-tokenlimit-limit-dynamic": "1",
            },
            Allowances(Allowance(10, 9, None, None), Allowance(3_000, 2_900, None, None)),
            id="together, with tokens",
        ),
        pytest.param(
            {"x-ratelimit-limit": "10", **openai("tokens", limit="3000", remaining="2900")},
            Allowances(Allowance(10, None, None, None), Allowance(3_000, 2_900, None, None)),
            id="together, with tokens under OpenAI's name",
        ),
        pytest.param(
            {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1796000030000"},
            Allowances(Allowance(20, 0, 30.0, None)),
            id="openrouter",
        ),
        pytest.param(
            {"ratelimit-limit": "20", "ratelimit-remaining": "0", "ratelimit-reset": "1796000030"},
            Allowances(Allowance(20, 0, 30.0, None)),
            id="a gateway, epoch seconds",
        ),
        pytest.param(
            {
                "x-ratelimit-limit-tokens-minute": "5000000",
                "x-ratelimit-remaining-tokens-minute": "4999911",
                "x-ratelimit-limit-tokens-month": "1000000000",
                "x-ratelimit-remaining-tokens-month": "900000000",
                "x-ratelimit-tokens-query-cost": "52",
                "x-ratelimit-limit-req-minute": "720",
                "x-ratelimit-remaining-req-minute": "717",
            },
            Allowances(Allowance(720, 717), Allowance(5_000_000, 4_999_911)),
            id="mistral",
        ),
        pytest.param(
            {"x-ratelimit-limit-req-second": "2", "x-ratelimit-remaining-req-second": "1"},
            Allowances(Allowance(2, 1, None, 1.0)),
            id="mistral, per second",
        ),
        pytest.param(
            {
                "ratelimitbysize-limit": "500000",
                "ratelimitbysize-remaining": "499900",
                "ratelimitbysize-reset": "28",
                "ratelimitbysize-query-cost": "32",
                "x-ratelimitbysize-limit-month": "1000000000",
            },
            Allowances(tokens=Allowance(500_000, 499_900, 28.0)),
            id="mistral, by size",
        ),
        pytest.param(
            {
                **openai("requests-minute", limit="30", remaining="29", reset="26.5"),
                **openai("requests-day", limit="900", remaining="800", reset="3600"),
                **openai("tokens-minute", limit="60000", remaining="59000", reset="26.5"),
                **openai("tokens-day", limit="1000000", remaining="0", reset="33011.38"),
            },
            Allowances(Allowance(30, 29, 26.5), Allowance(1_000_000, 0, 33_011.38, DAY)),
            id="several windows, one used up",
        ),
        pytest.param(
            openai(limit="1000", remaining="900", reset="7200"),
            Allowances(Allowance(1_000, 900, 7_200.0, None)),
            id="no minute takes hours",
        ),
        pytest.param(
            {**openai("tokens-prompt", limit="9000"), **openai("tokens-generated", limit="600")},
            Allowances(input_tokens=Allowance(9_000, None, None, None), output_tokens=Allowance(600, None, None, None)),
            id="input and output in other words",
        ),
        pytest.param(
            {
                **openai("concurrent-requests", limit="2"),
                **openai("images", limit="5"),
                **openai("input", limit="5"),
                "x-ratelimit-abusepenalty-active": "False",
                "x-ratelimit-limit-remaining": "5",
                "x-ratelimit-limit-requests-minute-day": "5",
                "anthropic-ratelimit-limit": "5",
                "llm_provider-x-ratelimit-limit-requests": "5",
            },
            None,
            id="names that say something else",
        ),
        pytest.param({"date": "Mon, 30 Nov 2026 00:53:20 GMT", "server": "llama.cpp"}, None, id="none"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_every_vendors_headers_are_read(headers, told):
    """Each format gives limits, what is left of them and when they are full, in seconds and per known window."""
    assert read(headers) == told
    assert read_allowances({name.lower(): text for name, text in headers.items()}, NOW) == told


@pytest.mark.parametrize(
    "nonsense", ["", " ", "-1", "-0.5", "nan", "inf", "-inf", "1e13", "9" * 5_000, "many", "1,000"]
)
def test_nonsense_is_as_if_not_sent(nonsense):
    """A number that is none, or cannot be meant, is passed over and the others are kept."""
    assert read(openai(limit=nonsense, remaining=nonsense, reset=nonsense)) is None
    assert read(openai(limit="60", remaining=nonsense, reset=nonsense)) == Allowances(Allowance(60))
    assert read(openai(limit=nonsense, remaining="3")) == Allowances(Allowance(None, 3))
    assert read(openai(limit="60", renewalperiod=nonsense)) == Allowances(Allowance(60))


@pytest.mark.parametrize(
    "reset", ["soon", "5 fortnights", "ms", "s", "1d", "1s2", "-1s", "nans", "infms", "1" * 50 + "s"]
)
def test_a_reset_that_is_no_time_is_passed_over(reset):
    """Words and units that nobody sends are no time."""
    assert read(openai(limit="60", remaining="3", reset=reset)) == Allowances(Allowance(60, 3))


@pytest.mark.parametrize("reset", ["2026-99-30T00:53:20Z", "2026-11-30T" + "0" * 50, "2026-", "-"])
def test_a_time_that_is_no_time_is_passed_over(reset):
    """A broken RFC 3339 time leaves the limit known."""
    assert read(anthropic("requests", limit="60", reset=reset)) == Allowances(Allowance(60))


@pytest.mark.parametrize(
    "reset", ["2026-11-29T00:00:00Z", "2026-11-30T00:53:20", "1795999999", "0001-01-01T00:00:00+23:59"]
)
def test_a_time_that_has_passed_is_now(reset):
    """A limit that was full before the reply is read is full."""
    assert read({"x-ratelimit-limit": "60", "x-ratelimit-reset": reset}) == Allowances(Allowance(60, None, 0.0, None))


@pytest.mark.parametrize("hours", [-3, 3])
@pytest.mark.parametrize("reset", ["2026-11-30T00:53:50Z", "1796000030", "1796000030000"])
def test_a_time_is_read_by_the_clock_it_was_written_by(reset, hours):
    """When a limit is full again goes by the reply's own date, however wrong the clock here is."""
    sent = {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
    told = read_allowances({**sent, "date": "Mon, 30 Nov 2026 00:53:20 GMT"}, NOW + hours * 3600)
    assert told.wait() == 30.0


def test_a_limit_of_0_is_none():
    """Nobody can keep to a limit of nothing, so it is not one."""
    assert read(openai(limit="0", remaining="0")) == Allowances(Allowance(None, 0))
    assert read(openai(limit="0")) is None


def test_not_more_remains_than_there_is():
    """What was rounded up to more than the limit is the limit."""
    assert read(anthropic("tokens", limit="10400", remaining="11000")) == Allowances(tokens=Allowance(10_400, 10_400))


def test_of_equal_windows_the_strictest_numbers_hold():
    """Where two limits of one length are told, neither is exceeded."""
    headers = {
        **openai("tokens", limit="40000", reset="1s"),
        **openai("project-tokens", limit="60000", remaining="20500", reset="39.5s"),
    }
    assert read(headers) == Allowances(tokens=Allowance(40_000, 20_500, 39.5))


@pytest.mark.parametrize(
    ("allowance", "per_minute"),
    [
        (Allowance(600), 600),
        (Allowance(10, window=1.0), 600),
        (Allowance(14_400, window=DAY), None),
        (Allowance(600, window=None), None),
        (Allowance(None, 5), None),
    ],
)
def test_a_limit_is_told_per_minute(allowance, per_minute):
    """Shorter windows are scaled to a minute, and nothing is made up for longer and unknown ones."""
    assert allowance.per_minute == per_minute
    assert Allowances(requests=allowance).requests_per_minute == per_minute


@pytest.mark.parametrize(
    ("allowance", "amount", "seconds"),
    [
        (Allowance(600, 5, 59.5), 1, 0.0),
        (Allowance(600, 0, 60.0), 1, 0.1),
        (Allowance(600, 0, 0.02), 1, 0.02),
        (Allowance(600, 0), 1, 0.1),
        (Allowance(60_000, 500, 59.5), 1_500, 1.0),
        (Allowance(60_000, 500, 59.5), 90_000, 59.5),
        (Allowance(14_400, 0, 86_395.0, DAY), 1, 6.0),
        (Allowance(20, 0, 30.0, None), 1, 30.0),
        (Allowance(20, 0, None, None), 1, 0.0),
        (Allowance(None, 0, 7.0), 1, 7.0),
        (Allowance(600), 1, 0.0),
    ],
)
def test_the_wait_is_that_of_a_bucket(allowance, amount, seconds):
    """One waits for what is missing to flow in, and for all of it only where no window is known."""
    assert allowance.wait(amount) == pytest.approx(seconds)


def test_the_wait_is_that_of_the_strictest_limit():
    """A request waits until requests, tokens, input and output all have room for it."""
    limits = {"requests": Allowance(600, 0), "tokens": Allowance(6_000, 0), "output_tokens": Allowance(600, 0)}
    assert Allowances(**limits).wait(90, 10) == pytest.approx(1.0)
    assert Allowances(**limits, input_tokens=Allowance(600, 0)).wait(90, 10) == pytest.approx(9.0)
    assert Allowances(requests=limits["requests"]).wait(90, 10) == pytest.approx(0.1)
    assert Allowances().wait(90, 10) == 0.0


@pytest.mark.parametrize(
    ("input_share", "budget"),
    [(None, 10_000), (0.0, 10_000), (0.5, 20_000), (0.75, 40_000), (0.9, 50_000 / 0.9), (1.0, 50_000)],
)
def test_one_budget_keeps_to_separate_limits(input_share, budget):
    """A budget for input and output together is as large as the limits allow for the mix, or their smallest."""
    told = Allowances(None, Allowance(60_000), Allowance(50_000), Allowance(10_000))
    assert told.tokens_per_minute(input_share) == pytest.approx(budget)


def test_no_budget_is_made_up():
    """Without a limit on tokens there is no budget for them."""
    assert Allowances(requests=Allowance(600)).tokens_per_minute() is None
    assert Allowances(tokens=Allowance(600, window=DAY)).tokens_per_minute(0.5) is None
    assert Allowances(tokens=Allowance(600)).requests_per_minute is None


@given(st.floats(1, 1e6).map(round), st.floats(0.001, 1), st.sampled_from([60.0, DAY]), st.floats(0, 1))
def test_a_bucket_of_a_day_is_told_from_one_of_a_minute(limit, share, window, left):
    """Whatever was spent, the length of the window is read off how slowly it comes back."""
    spent = max(1.0, share * limit) if limit > 1 else 1.0
    remaining = math.floor(limit - spent)
    headers = openai(limit=str(limit), remaining=str(remaining), reset=_go(round(spent / limit * window * 1e3) * 10**6))
    told = read(headers)
    # A day's bucket that is full within two seconds may as well be a minute's whose reset was rounded.
    if window == 60.0 or spent / limit * window > 5:
        assert told.requests.window == window


TEXTS = (
    st.text(st.characters(exclude_categories=()))
    | st.from_regex(r"\A-?[0-9.e_]*(ms|[smhZ]|)\Z")
    | st.datetimes().map(str)
)
WORDS = st.sampled_from(
    ["limit", "remaining", "reset", "renewalperiod", "requests", "req", "tokens", "input", "output", "project", "day"]
)
NAMES = st.text() | st.tuples(
    st.sampled_from(["x-ratelimit", "ratelimit", "anthropic-ratelimit", "ratelimitbysize", "X-TokenLimit"]),
    st.lists(WORDS, max_size=4),
).map(lambda parts: "-".join([parts[0], *parts[1]]))


@given(st.dictionaries(NAMES, TEXTS), st.floats(0, 1e11), st.floats(0, 1e9), st.floats(0, 1))
def test_any_header_is_survived(headers, now, tokens, share):
    """Whatever the headers say, reading them raises nothing and gives numbers that can be counted on."""
    told = read_allowances(headers, now)
    if told is None:
        return
    for allowance in told:
        for number in allowance or ():
            assert number is None or 0 <= number < math.inf
        assert allowance is None or allowance.limit is None or allowance.limit > 0
    assert 0 <= told.wait(tokens, tokens) < math.inf
    assert told.requests_per_minute is None or 0 < told.requests_per_minute < math.inf
    budget = told.tokens_per_minute(share)
    assert budget is None or budget > 0


def _go(nanoseconds):
    """Write a duration as Go's ``Duration.String`` does."""
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if nanoseconds < 1_000 * size and nanoseconds:
            return _decimal(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(rest, 10**9) + "s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _decimal(number, size):
    whole, rest = divmod(number, size)
    return f"{whole}.{rest:0{len(str(size)) - 1}}".rstrip("0") if rest else str(whole)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1_500, "1.5µs"),
        (12 * 10**6, "12ms"),
        (10**9, "1s"),
        (360 * 10**9, "6m0s"),
        (3723500 * 10**6, "1h2m3.5s"),
    ],
)
def test_durations_are_written_as_go_does(nanoseconds, text):
    """The test's own writer of durations agrees with what vendors send."""
    assert _go(nanoseconds) == text


@given(st.integers(0, 32 * 86_400 * 10**9))
def test_durations_survive_the_round_trip(nanoseconds):
    """Any duration that Go writes is read as what it was."""
    told = read(openai("tokens", limit="60", reset=_go(nanoseconds)))
    assert told.tokens.reset == pytest.approx(nanoseconds / 1e9, rel=1e-12)


def test_pieces_in_any_order_are_a_duration():
    """Units in another order than Go's, and its older sign for micro, are understood."""
    assert read(openai(limit="60", reset="1s500ms")).requests.reset == 1.5
    assert read(openai(limit="60", reset="5μs")).requests.reset == pytest.approx(5e-6)
