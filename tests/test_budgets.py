"""Honest numbers: what is not known is shown as unknown, and what may be spent is not overspent."""

from __future__ import annotations

import math
import random
import warnings

import pandas as pd
import pytest

import batchkit as bk

LABELS = ["billing", "delivery", "defect"]


def frame(count):
    return pd.DataFrame({"text": [f"message {number}: {'where is it? ' * (number % 7)}" for number in range(count)]})


def classify(df, route, **settings):
    return df.llm.classify("text", LABELS, route=route, progress=False, **settings)


def first(text, labels):
    return labels[0]


@pytest.fixture
def play():
    with bk.playground(answer=first, one={}, two={"dialect": "anthropic"}) as play:
        yield play


def shown(run):
    """All that a person sees of a run without asking for numbers."""
    return "\n".join([repr(run), str(run.cost), repr(run.cost), run._repr_html_(), str(run.summary)])


# ---- what a run cost -----------------------------------------------------------------------------


def test_a_known_price_is_counted_to_the_cent(play):
    """Cost is tokens times price, the same by row, by request, by provider and for the run."""
    out = classify(frame(20), play.one.provider(price=(3.0, 15.0)), details="full")
    run = bk.last_run()
    requests = run.requests
    expected = (requests["tokens_in"].sum() * 3.0 + requests["tokens_out"].sum() * 15.0) / 1e6
    assert expected > 0
    for total in (run.cost.usd, run.summary["cost"].sum(), requests["cost"].sum(), out["label_cost"].sum()):
        assert math.isclose(total, expected)
    assert not run.cost_is_partial
    assert "$" in str(run.cost)


def test_an_unknown_price_is_shown_as_unknown(play):
    """Without a price no number and no dollar stands anywhere, nothing warns, and all is marked as partial."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = classify(frame(3), play.one.provider(), details="full")
        run = bk.last_run()
        assert "$" not in shown(run)
    assert out["label_cost"].isna().all()
    assert run.summary["cost"].isna().all()
    assert run.requests["cost"].isna().all()
    assert (run.cost.usd, run.cost.is_partial, run.cost_is_partial) == (None, True, True)
    assert "price unknown" in str(run.cost)


def test_a_price_of_nothing_is_nothing(play):
    """A server of one's own costs $0, which is a price like any other."""
    out = classify(frame(3), play.one.provider(price=(0, 0)), details="full", max_cost=0.01)
    run = bk.last_run()
    assert (run.cost.usd, run.cost_is_partial) == (0.0, False)
    assert str(run.cost).endswith("$0")
    assert out["label_cost"].tolist() == [0.0] * 3
    assert out["label"].notna().all()


def test_a_mixture_is_partial(play):
    """Where one of two prices is known, the known part is shown and said to be a part."""
    route = bk.split({play.one.provider(price=(3.0, 15.0)): 4, play.two.provider(): ...})
    out = classify(frame(8), route, details="full")
    run = bk.last_run()
    assert run.cost.usd > 0
    assert run.cost_is_partial
    assert "and some unknown" in str(run.cost)
    assert out["label_cost"].isna().tolist() == [False] * 4 + [True] * 4
    assert run.summary["cost"].isna().tolist() == [False, True]


def test_a_vendors_price_holds_at_its_own_address_only(monkeypatch):
    """The listed price of a model is nobody else's, whatever the model is called."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "a" * 48)
    assert bk.OpenAI("gpt-5")._price().input > 0
    assert bk.OpenAI("gpt-5", base_url="http://localhost:8000/v1")._price() is None
    assert bk.OpenAI("a-model-that-nobody-knows")._price() is None
    assert bk.OpenAI("gpt-5", base_url="http://localhost:8000/v1", price=(1, 2))._price().input == 1


def test_a_known_model_at_another_address_has_no_price(play):
    """A server that calls its model as a vendor does is not paid as the vendor is."""
    classify(frame(2), play.one.provider("gpt-4o-mini"))
    assert bk.last_run().cost.usd is None
    assert "$" not in shown(bk.last_run())


@pytest.mark.parametrize(
    ("server", "kind"),
    [({"script": ["refusal"] * 9}, "refused"), ({"truncated": 1.0}, "truncated"), ({"invalid": 1.0}, "invalid_answer")],
)
def test_calls_without_an_answer_cost_as_well(server, kind):
    """Refused, cut and invalid replies are paid for, and counted."""
    cap = 1 if kind == "truncated" else None
    with bk.playground(answer=first, one=server) as play:
        out = classify(frame(3), play.one.provider(price=(3.0, 15.0), max_output_tokens=cap))
        sent = [(request.input_tokens, request.output_tokens) for request in play.one.requests]
    run = bk.last_run()
    assert out["label_error"].tolist() == [kind] * 3
    assert math.isclose(run.cost.usd, sum(tokens_in * 3.0 + tokens_out * 15.0 for tokens_in, tokens_out in sent) / 1e6)
    assert not run.cost_is_partial


def test_a_request_that_was_turned_away_costs_nothing():
    """An error the server sends instead of an answer is free; one whose reply was lost may not have been."""
    with bk.playground(answer=first, one={"script": ["server_error", "ok"]}, two={"drops": 1.0}) as play:
        classify(frame(1), play.one.provider(price=(3.0, 15.0)))
        assert not bk.last_run().cost_is_partial
        assert bk.last_run().requests["cost"].tolist()[0] == 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bk.BatchkitWarning)
            classify(frame(1), play.two.provider(price=(3.0, 15.0), max_retries=0))
        assert bk.last_run().cost_is_partial


def test_what_is_reused_costs_nothing_again(play, tmp_path):
    """A re-run that asks nobody costs nothing, and its rows say so."""
    settings = {"journal": tmp_path / "journal.sqlite", "details": "full"}
    classify(frame(3), play.one.provider(price=(3.0, 15.0)), **settings)
    out = classify(frame(3), play.one.provider(price=(3.0, 15.0)), **settings)
    assert (bk.last_run().cost.usd, bk.last_run().cost_is_partial) == (0.0, False)
    assert out["label_cost"].tolist() == [0.0] * 3


def test_reasoning_and_cached_tokens_have_their_own_rates():
    """A dict of rates may price what was cached, and what was thought, apart."""
    rates = {"input": 3.0, "output": 15.0, "cached": 0.3, "reasoning": 20.0}
    with bk.playground(answer=first, one={}) as play:
        classify(frame(3), play.one.provider(price=rates))
        requests = bk.last_run().requests
    cached = requests["tokens_cached"].sum()
    expected = ((requests["tokens_in"].sum() - cached) * 3.0 + cached * 0.3 + requests["tokens_out"].sum() * 15.0) / 1e6
    assert math.isclose(bk.last_run().cost.usd, expected)


# ---- what it may cost ----------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["an unknown model", "one of two", "a function"])
def test_max_cost_needs_all_prices(play, who):
    """A budget that cannot be kept is refused before anything is sent."""
    route = {
        "an unknown model": lambda: play.one.provider(),
        "one of two": lambda: bk.balance(play.one.provider(), play.two.provider(price=(1, 2))),
        "a function": lambda: bk.FunctionProvider(lambda _: "billing", name="one"),
    }[who]()
    with pytest.raises(bk.ConfigError, match=r"max_cost=0\.5 cannot be kept.*price of one "):
        classify(frame(3), route, max_cost=0.5)
    assert play.one.requests == play.two.requests == []


@pytest.mark.parametrize("max_cost", [0, -1, math.inf, math.nan, "1", True])
def test_a_budget_is_a_number_above_nothing(play, max_cost):
    """Anything else is refused, with the value."""
    with pytest.raises(bk.ConfigError, match=r"max_cost=.*must be a number above 0"):
        classify(frame(1), play.one.provider(price=(1, 2)), max_cost=max_cost)


@pytest.mark.parametrize("seed", range(6))
def test_max_cost_holds(seed):
    """Whatever is in flight, cut, asked again or invalid: no more is spent than allowed, and most of it is used."""
    # What is left may be too little for a row that is asked again with more room.
    rng = random.Random(seed)
    faults = {"truncated": 0.1, "invalid": 0.1, "server_errors": 0.05, "latency": 0.002, "jitter": 0.001}
    df, rates = frame(300), {"price": (3.0, 15.0), "max_retries": 1, "max_concurrency": rng.choice([1, 8, 32])}
    max_cost = rng.choice([0.02, 0.05, 0.1])
    with bk.playground(seed=seed, answer=first, one=faults, two={"dialect": "anthropic", **faults}) as play:
        route = play.one.provider(**rates)
        if seed % 2:
            route = bk.balance(route, play.two.provider(**rates))
        out = classify(df, route, max_cost=max_cost)
    run = bk.last_run()
    assert run.cost.usd <= max_cost
    assert run.cost.usd >= 0.6 * max_cost
    errors = set(out["label_error"].dropna())
    assert "budget" in errors
    assert errors <= {"budget", "server", "truncated", "invalid_answer"}
    rows = run.rows
    assert rows["status"][out["label_error"] == "budget"].eq("pending").all()
    assert rows["message"][out["label_error"] == "budget"].str.contains("max_cost was reached").all()


def test_a_budget_goes_on_where_it_ended(play, tmp_path):
    """The same cell with the same budget answers more rows each time, until all are done."""
    df, journal, answered = frame(120), tmp_path / "journal.sqlite", [0]
    provider = play.one.provider(price=(3.0, 15.0), max_concurrency=4)
    while answered[-1] < 120:
        out = classify(df, provider, max_cost=0.01, journal=journal)
        answered.append(int(out["label"].notna().sum()))
        assert answered[-1] > answered[-2]
        assert bk.last_run().cost.usd <= 0.01
    assert len(answered) > 4
    assert len(play.one.requests) == 120


def test_a_budget_may_be_a_default(play):
    """bk.use(max_cost=) holds for every run, and a verb's own goes before it."""
    provider = play.one.provider(price=(3.0, 15.0))
    with bk.use(max_cost=0.004):
        assert "budget" in set(classify(frame(60), provider)["label_error"])
        assert classify(frame(60), provider, max_cost=5.0)["label"].notna().all()


def test_max_seconds_keeps_what_is_done():
    """After max_seconds nothing new is sent, what is in flight still counts, and the rest says budget."""
    with bk.playground(answer=first, one={"latency": 0.05}) as play:
        out = classify(frame(200), play.one.provider(max_concurrency=4), max_seconds=0.2)
        sent = len(play.one.requests)
    assert 0 < sent < 200
    assert out["label"].notna().sum() == sent
    assert out["label_error"].eq("budget").sum() == 200 - sent
    rows = bk.last_run().rows
    assert rows["message"].dropna().str.contains("max_seconds were over").all()
