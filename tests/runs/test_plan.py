"""df.llm.plan: what a run would come to, without a request and without a key."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import batchkit as bk

BANKING = Path(__file__).parents[3] / "shared" / "data" / "banking77_test.csv"
LABELS = ["a", "b"]


def frame():
    return pd.DataFrame({"text": ["one", "two", None, "one", "three", " "], "n": range(6)})


def always_a(text, labels):
    return labels[0]


def test_a_plan_counts_and_sends_nothing():
    """Rows, blanks, duplicates and requests are counted; no request leaves, and no key is needed."""
    plan = frame().llm.plan.classify("text", LABELS, route="openai:gpt-6-luna")
    assert (plan.rows, plan.blank, plan.unrouted, plan.unique, plan.answered, plan.requests) == (6, 2, 0, 3, 0, 3)
    assert plan.tokens > 0
    assert plan.cost > 0
    assert plan.seconds is None
    assert "3 requests" in repr(plan)
    assert "time unknown" in repr(plan)
    with pytest.raises(bk.ConfigError, match="OPENAI_API_KEY"):
        plan.run()


def test_requests_are_exactly_those_of_the_run():
    """For routes that do not depend on answers the plan's requests are the fault-free run's, provider by provider."""
    with bk.playground(answer=always_a) as play:
        fast, careful = play.fast.provider(), play.careful.provider()
        route = bk.when("n == 4", careful).otherwise(fast)
        plan = frame().llm.plan.classify("text", LABELS, route=route)
        assert play.fast.requests == []
        plan.run()
        assert plan.providers["requests"].to_dict() == {"careful": 1, "fast": 2}
        assert (len(play.careful.requests), len(play.fast.requests)) == (1, 2)


def test_an_unknown_price_is_shown_as_unknown():
    """Without a price there is no cost, not $0; a provider that is not asked does not matter."""
    unpriced = bk.FunctionProvider(lambda _: "a", name="f")
    plan = frame().llm.plan.classify("text", LABELS, route=unpriced)
    assert plan.cost is None
    assert "price unknown" in repr(plan)
    assert "$" not in repr(plan) + plan._repr_html_()
    route = bk.split({bk.Embedded(): ..., unpriced: 0})
    assert frame().llm.plan.classify("text", LABELS, route=route).cost == 0.0


def test_what_the_journal_holds_is_not_counted(tmp_path):
    """Answers that are in the journal are said to be there; refresh=True asks for them again."""
    kept = bk.FunctionProvider(lambda _: "a", name="f", version="1")
    settings = {"route": kept, "journal": tmp_path / "journal.sqlite", "progress": False}
    frame().head(2).llm.classify("text", LABELS, **settings)
    plan = frame()["text"].llm.plan.classify(LABELS, route=kept, journal=tmp_path / "journal.sqlite")
    assert (plan.unique, plan.answered, plan.requests) == (3, 2, 1)
    again = frame().llm.plan.classify("text", LABELS, **settings, refresh=True)
    assert again.requests == 3


@pytest.mark.parametrize("keep", [True, False])
def test_a_pilot_is_not_asked_twice(tmp_path, keep):
    """The pilot's rows are asked once, with a journal and without one, and run() does the rest."""
    df = pd.DataFrame({"text": [f"row {number}" for number in range(50)]})
    with bk.playground(answer=always_a) as play:
        plan = df.llm.plan.classify(
            "text",
            LABELS,
            route=play.fast.provider(price=(1.0, 2.0)),
            sample=8,
            progress=False,
            journal=tmp_path / "j.sqlite" if keep else False,
        )
        assert len(play.fast.requests) == 8
        assert (plan.answered, plan.requests) == (8, 42)
        assert plan.seconds > 0
        out = plan.run()
        assert len(play.fast.requests) == 50
    assert out["label"].tolist() == ["a"] * 50


@pytest.mark.parametrize("sample", [-1, 1.5, True, "20"])
def test_a_sample_is_a_number_of_rows(sample):
    """A pilot of no whole number of rows is refused."""
    with pytest.raises(bk.InputError, match="sample="):
        frame().llm.plan.classify("text", LABELS, route=bk.Embedded(), sample=sample)


@pytest.mark.skipif(not BANKING.is_file(), reason="the banking77 messages are not here")
def test_a_pilot_of_twenty_foretells_tokens_and_cost():
    """With a pilot of 20 rows, tokens and cost of 3,080 are foretold within a tenth."""
    df = pd.read_csv(BANKING)
    labels = sorted(df["category"].unique())
    with bk.playground(short={}, long={"dialect": "anthropic"}) as play:
        short = play.short.provider(max_concurrency=32, price=(0.1, 0.5))
        long = play.long.provider(max_concurrency=16, price=(1.0, 5.0))
        route = bk.when("text.str.len() > 60", long).otherwise(short)
        plan = df.llm.plan.classify("text", labels, route=route, sample=20, progress=False)
        plan.run()
    cost = bk.last_run().cost
    assert plan.tokens == pytest.approx(cost.tokens_in + cost.tokens_out, rel=0.1)
    assert plan.cost == pytest.approx(cost.usd, rel=0.1)


@pytest.mark.parametrize("slots", [(1, 1), (8, 8), (3, 8), (1, 2, 16)])
@pytest.mark.parametrize("count", [1, 2, 7, 107])
def test_providers_that_share_a_queue_get_whole_requests_that_add_up(slots, count):
    """However a queue is shared, the requests of its providers are all requests."""
    providers = [bk.FunctionProvider(str, name=f"f{place}", max_concurrency=most) for place, most in enumerate(slots)]
    df = pd.DataFrame({"text": [f"row {number}" for number in range(count)]})
    route = bk.split({bk.balance(*providers): ..., None: 0})
    plan = df.llm.plan.classify("text", LABELS, route=route)
    assert plan.providers["requests"].sum() == plan.requests == count
    assert plan.providers["requests"].min() >= 0


def test_what_a_pilot_cost_is_part_of_max_cost():
    """A pilot and the rest of its plan stay within one max_cost together."""
    df = pd.DataFrame({"text": [f"row {number}" for number in range(60)]})
    with bk.playground(answer=always_a) as play:
        provider = play.fast.provider("gpt-4o", max_concurrency=2, max_output_tokens=64, price=(3, 15))
        df.llm.classify("text", LABELS, route=provider, journal=False, progress=False)
        whole = bk.last_run().cost.usd
        limits = {"route": provider, "journal": False, "progress": False, "max_cost": 0.8 * whole}
        plan = df.llm.plan.classify("text", LABELS, sample=30, **limits)
        assert 0.4 * whole < plan.pilot.cost.usd <= 0.6 * whole
        out = plan.run()
        assert plan.pilot.cost.usd + bk.last_run().cost.usd <= 0.8 * whole
        assert 0 < out["label_error"].eq("budget").sum() < 30


def test_the_retry_of_a_pilot_asks_about_the_pilots_rows_only():
    """Rows that a pilot left out are not its pending ones: they are for plan.run()."""
    asked, moods = [], {"bad": True}

    def answer(prompt):
        asked.append(str(prompt))
        return None if moods["bad"] else "a"

    df = pd.DataFrame({"text": [f"row {number}" for number in range(60)]})
    plan = df.llm.plan.classify("text", LABELS, sample=5, route=bk.FunctionProvider(answer), progress=False)
    flown, moods["bad"] = set(asked), False
    asked.clear()
    out = plan.pilot.retry()
    assert set(asked) == flown
    assert len(flown) == 5
    assert out["label"].notna().sum() == 5


def numbered(bad):
    """A provider whose calls can be told apart by the confidence they bring, and a list of them; some bring nothing."""
    asked = []

    def answer(prompt):
        asked.append(len(asked))
        return None if asked[-1] in bad else {"label": "a", "confidence": asked[-1] / 100}

    return bk.FunctionProvider(answer, version="1", max_concurrency=1), asked


def test_equal_rows_asked_apart_keep_their_own_answers_after_a_pilot(tmp_path):
    """With dedupe=False the rest of a plan, and a re-run, ask exactly the rows without an answer of their own."""
    provider, asked = numbered({1})
    terms = {"route": provider, "dedupe": False, "journal": tmp_path / "j.sqlite", "progress": False}
    df = pd.DataFrame({"text": ["same"] * 6})
    plan = df.llm.plan.classify("text", LABELS, sample=2, **terms)
    assert (plan.requests, len(asked)) == (4, 3)  # one of the pilot's two was asked twice
    out = plan.run()
    assert len(asked) == 3 + 4
    assert out["label_confidence"].nunique() == 6
    again = df.llm.classify("text", LABELS, **terms)
    assert len(asked) == 3 + 4
    assert again["label_confidence"].tolist() == out["label_confidence"].tolist()


def test_a_retry_of_equal_rows_asked_apart_takes_no_others_answer(tmp_path):
    """With dedupe=False a row that failed is asked again though an equal one has its answer."""
    provider, asked = numbered({1, 2})
    terms = {"route": provider, "dedupe": False, "journal": tmp_path / "j.sqlite", "progress": False}
    df = pd.DataFrame({"text": ["same"] * 4})
    out = df.llm.classify("text", LABELS, **terms)
    assert (out["label"].isna().sum(), len(asked)) == (1, 5)
    done = bk.last_run().retry()
    assert len(asked) == 6
    assert done["label_confidence"].nunique() == 4
    again = df.llm.classify("text", LABELS, **terms)
    assert len(asked) == 6
    assert again["label_confidence"].tolist() == done["label_confidence"].tolist()
