"""What requests cost, and whether the next one may still be paid for."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.pricing import (
    TOKENS_PER_BYTE,
    Budget,
    Price,
    Tally,
    cost,
    dollars,
    estimate_tokens,
    learn,
    read_price,
    reserve,
)
from batchkit.errors import ConfigError
from batchkit.records import Usage

PLAIN = Price(0.1, 0.5)
DETAILED = Price(2.0, 10.0, cached=0.2, reasoning=20.0)
FREE = Price(0.0, 0.0)
TIERED = Price(1.0, 10.0, tiers=((1_000, Price(2.0, 20.0)), (5_000, Price(4.0, 40.0))))

rates = st.floats(0, 1_000)
some_rates = st.none() | rates
flat_prices = st.builds(Price, rates, rates, some_rates, some_rates)
prices = flat_prices | st.builds(
    lambda base, longer, start: Price(base.input, base.output, base.cached, base.reasoning, tiers=((start, longer),)),
    flat_prices,
    flat_prices,
    st.integers(1, 10_000),
)
amounts = st.floats(0, 1, allow_subnormal=False)


@st.composite
def usages(draw):
    sent, received = draw(st.integers(0, 20_000)), draw(st.integers(0, 20_000))
    return Usage(sent, received, draw(st.integers(0, sent)), draw(st.integers(0, received)))


# ---- prices as users give them ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("price", "read"),
    [
        ((0.1, 0.5), Price(0.1, 0.5)),
        ([1, 2], Price(1.0, 2.0)),
        ((0, 0), FREE),
        ((Fraction(1, 2), 1), Price(0.5, 1.0)),
        ({"input": 0.1, "output": 0.5}, Price(0.1, 0.5)),
        ({"output": 10, "input": 2, "cached": 0.2, "reasoning": 20}, DETAILED),
        ({"input": 0.1, "output": 0.5, "cached": None}, Price(0.1, 0.5)),
        ({"input": 0.1, "output": 0.5, "cached": 0}, Price(0.1, 0.5, cached=0.0)),
    ],
)
def test_a_price_is_a_pair_or_names_its_rates(price, read):
    """A price is (input, output) or a mapping of rates, and comes out as floats said by the user."""
    found = read_price(price)
    assert found == read
    assert type(found.input) is float
    assert found.source == "user"


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (0.1, ["0.1", "(input, output)"]),
        ("0.1", ["'0.1'", "(input, output)"]),
        ("ab", ["'ab'", "(input, output)"]),
        (None, ["None", "(input, output)"]),
        ((0.1,), ["(0.1,)", "(input, output)"]),
        ((0.1, 0.5, 0.01), ["(0.1, 0.5, 0.01)", "cached"]),
        ({}, ["{}", "'input'"]),
        ({"input": 0.1}, ["'output'", "(input, output)"]),
        ({"input": 0.1, "output": 0.5, "chached": 0.01}, ["'chached'", "Did you mean 'cached'?"]),
        ({"input": 0.1, "output": 0.5, 3: 0.01}, ["no rate 3", "'reasoning'"]),
        ((-0.1, 0.5), ["input=-0.1", "at least 0"]),
        ((0.1, math.nan), ["output=nan", "number"]),
        ((0.1, math.inf), ["output=inf", "number"]),
        ((0.1, 10**400), ["output=1000", "number"]),
        ((0.1, "0.5"), ["output='0.5'", "number"]),
        ((True, 0.5), ["input=True", "number"]),
        ({"input": None, "output": 0.5}, ["input=None", "number"]),
        ({"input": 0.1, "output": 0.5, "cached": -1}, ["cached=-1", "at least 0"]),
    ],
)
def test_what_is_no_price_is_refused_by_name(price, words):
    """A price that cannot be is a `ConfigError` that names what is wrong and what would be right."""
    with pytest.raises(ConfigError) as caught:
        read_price(price)
    assert [word for word in ["price=", *words] if word not in str(caught.value)] == []


# ---- what a reply cost ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "price", "usd"),
    [
        (Usage(1_000_000, 0), PLAIN, 0.1),
        (Usage(1_000_000, 1_000_000), PLAIN, 0.6),
        (Usage(1_000_000, 1_000_000, cached=500_000, reasoning=500_000), PLAIN, 0.6),
        (Usage(1_000_000, 0, cached=1_000_000), DETAILED, 0.2),
        (Usage(1_000_000, 0, cached=750_000), DETAILED, 0.65),
        (Usage(1_000_000, 100_000, reasoning=100_000), DETAILED, 4.0),
        (Usage(1_000_000, 100_000, reasoning=25_000), DETAILED, 3.25),
        (Usage(1_000, 0), TIERED, 0.001),
        (Usage(1_001, 100), TIERED, 0.004002),
        (Usage(5_001, 100), TIERED, 0.024004),
        (Usage(0, 9), FREE, 0.0),
        (Usage(), FREE, 0.0),
    ],
)
def test_every_token_is_charged_once_at_its_own_rate(usage, price, usd):
    """Cached input and reasoning have their rate or that of the rest, and a tier holds for the whole request."""
    assert cost(usage, price) == pytest.approx(usd)


@pytest.mark.parametrize("usage", [Usage(), Usage(10, 2)])
def test_without_a_price_the_cost_is_unknown(usage):
    """An unknown price makes no number, least of all 0."""
    assert cost(usage, None) is None


@pytest.mark.parametrize("usage", [Usage(), Usage(output=7)])
def test_what_nobody_counted_has_no_known_cost(usage):
    """A server that counts no tokens does not make its replies free."""
    assert cost(usage, PLAIN) is None


@given(usages(), prices, st.integers(0, 1_000))
def test_a_reserve_covers_what_it_stands_for(usage, price, spare):
    """No reply within the reserved tokens costs more than its reserve, and none costs less than nothing."""
    spent = cost(usage, price)
    if spent is not None:
        assert 0 <= spent <= reserve(usage.input, usage.output + spare, price) * (1 + 1e-9)


def test_counts_that_do_not_fit_together_give_no_refund():
    """More cached than sent, or more thought than received, is the server's mistake and makes nothing cheaper."""
    usage = Usage(10, 5, cached=100, reasoning=50)
    assert cost(usage, Price(1.0, 1.0, cached=0.1, reasoning=0.1)) == pytest.approx(15e-6)


# ---- sums of money ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "usd", "is_partial", "text"),
    [
        ([], 0.0, False, "$0"),
        ([0.0, 0.0], 0.0, False, "$0"),
        ([0.0100, 0.0023], 0.0123, False, "$0.0123"),
        ([0.0123, None], 0.0123, True, "$0.0123 and some unknown"),
        ([None, 0.00001], 0.00001, True, "under $0.0001 and some unknown"),
        ([None], None, True, "price unknown"),
        ([None, 0.0], None, True, "price unknown"),
    ],
)
def test_a_tally_says_what_it_knows(costs, usd, is_partial, text):
    """A tally shows the known part, says when there is an unknown one, and never shows $0 for it."""
    tally = Tally()
    for amount in costs:
        tally.add(amount)
    assert tally.usd == pytest.approx(usd)
    assert tally.is_partial is is_partial
    assert str(tally) == text
    assert repr(tally) == f"Tally({text})"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0"),
        (1e-9, "under $0.0001"),
        (0.00005, "$0.0001"),
        (0.5, "$0.5000"),
        (1, "$1.00"),
        (1234567.891, "$1,234,567.89"),
    ],
)
def test_small_amounts_do_not_look_like_nothing(amount, text):
    """Only nothing is written as $0; large amounts have cents, small ones four digits."""
    assert dollars(amount) == text


# ---- tokens before they are counted -----------------------------------------------------------


def test_four_bytes_make_a_token_until_a_pilot_says_otherwise():
    """Without a pilot a token has four bytes, and with one the ratio it taught."""
    assert estimate_tokens(400) == 100
    assert estimate_tokens(400, learn([(100, 30), (300, 90)])) == pytest.approx(120)


@pytest.mark.parametrize("pairs", [[], [(100, 0)], [(0, 5)]])
def test_a_pilot_without_counts_teaches_nothing(pairs):
    """Where a server counted no tokens the usual ratio stays."""
    assert learn(pairs) == TOKENS_PER_BYTE


@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 10_000)), min_size=1))
def test_a_learned_ratio_is_right_for_its_own_pilot(pairs):
    """Estimated over all requests of the pilot, the tokens are those that were counted."""
    ratio = learn(iter([*pairs, (77, 0)]))
    assert sum(estimate_tokens(size, ratio) for size, _ in pairs) == pytest.approx(sum(tokens for _, tokens in pairs))


# ---- a budget ---------------------------------------------------------------------------------


@given(
    st.floats(0, 3),
    st.lists(st.tuples(amounts, st.none() | st.floats(0, 2), st.booleans())),
)
def test_a_budget_holds(max_cost, requests):
    """Spent and reserved together exceed `max_cost` by no more than what replies cost above their reserves."""
    budget, in_flight, above, paid = Budget(max_cost), [], 0.0, []
    for amount, actual, is_slow in requests:
        if budget.may_send(amount):
            budget.take(amount)
            in_flight.append((amount, actual))
        if in_flight and not is_slow:
            reserved, charged = in_flight.pop(0)
            budget.settle(reserved, charged)
            paid.append(reserved if charged is None else charged)
            above += max(0.0, paid[-1] - reserved)
        assert budget.spent + budget.reserved <= max_cost + above + 1e-6
        assert budget.spent == pytest.approx(sum(paid))
        assert budget.reserved == pytest.approx(sum(reserved for reserved, _ in in_flight), abs=1e-9)


def test_a_budget_can_be_used_up_to_its_last_cent():
    """Three requests of 10 cents fit into 30 cents, although as floats they add up to a little more."""
    budget = Budget(0.3)
    for _ in range(3):
        assert budget.may_send(0.1)
        budget.take(0.1)
    assert not budget.may_send(0.1)


def test_what_turns_out_cheaper_makes_room():
    """What does not fit beside a reserve may be sent once that is settled, and an unknown cost counts as reserved."""
    budget = Budget(1.0)
    budget.take(0.9)
    assert not budget.may_send(0.2)
    budget.settle(0.9, 0.1)
    assert budget.may_send(0.2)
    budget.take(0.9)
    budget.settle(0.9, None)
    assert not budget.may_send(0.2)
    assert repr(budget) == "Budget($1.00 spent, $0 reserved of $1.00)"


def test_no_money_buys_what_is_free():
    """A budget of nothing lets free requests through and no others."""
    budget = Budget(0.0)
    assert budget.may_send(0.0)
    assert not budget.may_send(1e-6)
