"""Guarantee 1: every answer was produced by its own row's text, and stands on its own row."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import batchkit as bk
from batchkit._logic import pacing
from batchkit._playground import Server

BANKING = Path(__file__).parents[2] / "shared" / "data" / "banking77_test.csv"
CODES = [f"c{number}" for number in range(12)]


def echo(text, labels):
    """The label that the row's text names."""
    return next(label for label in labels if label == text.split("#")[1])


@pytest.fixture(scope="module")
def play():
    faults = {"server_errors": 0.1, "drops": 0.05, "garbage": 0.05, "truncated": 0.1, "invalid": 0.1}
    servers = {
        "one": Server("openai", latency=0.004, jitter=0.004, **faults),
        "two": Server("anthropic", latency=0.002, jitter=0.004, **faults),
    }
    with bk.playground(seed=5, answer=echo, **servers) as running:
        yield running


def indices(count):
    """Indices of every kind pandas knows, duplicates and missing values among them."""
    dates = st.lists(
        st.sampled_from([pd.Timestamp("2026-01-01"), pd.Timestamp("2026-02-01"), pd.NaT]),
        min_size=count,
        max_size=count,
    )
    texts = st.lists(st.sampled_from(["a", "b", "", "ä"]), min_size=count, max_size=count)
    numbers = st.lists(st.integers(-2, 2), min_size=count, max_size=count)
    return st.one_of(
        st.just(pd.RangeIndex(count)),
        numbers.map(lambda values: pd.Index(values, dtype="int64", name="n")),
        texts.map(lambda values: pd.Index(values, dtype=object)),
        dates.map(lambda values: pd.DatetimeIndex(values, name="day")),
        st.tuples(texts, numbers).map(lambda parts: pd.MultiIndex.from_arrays(parts, names=["t", None])),
    )


@st.composite
def frames(draw):
    count = draw(st.integers(0, 24))
    cells = draw(
        st.lists(
            st.tuples(st.sampled_from([*CODES, None]), st.integers(0, 3), st.sampled_from(["zh", "en"])),
            min_size=count,
            max_size=count,
        )
    )
    return pd.DataFrame(
        {
            "text": pd.Series(
                [None if code is None else f"row {copy} #{code}" for code, copy, _ in cells], dtype=object
            ),
            "lang": pd.Series([lang for _, _, lang in cells], dtype=object),
            "code": pd.Series([code for code, _, _ in cells], dtype=object),
        }
    ).set_axis(draw(indices(count)))


def routes(one, two, local):
    return st.sampled_from(
        [
            one,
            two,
            bk.balance(one, two),
            bk.balance(one, two, local),
            bk.when("lang == 'zh'", two).otherwise(one),
            bk.when("lang == 'zh'", bk.balance(one, local)).otherwise(bk.split({one: 0.5, two: 0.5})),
            bk.by("lang", {"zh": two}, default=local),
            bk.split({one: 0.3, two: 0.7}),
        ]
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_answer_stands_on_its_own_row(play, data):
    """Whatever the index, the delays, the faults and the route: each row's answer is the one its text names."""
    df = data.draw(frames())
    chance = random.Random(data.draw(st.integers(0, 99)))

    async def local(prompt):
        await asyncio.sleep(chance.random() / 500)
        return prompt.split("#")[1]

    one = play.one.provider(max_concurrency=data.draw(st.integers(1, 8)), max_retries=20)
    two = play.two.provider(max_concurrency=data.draw(st.integers(1, 8)), max_retries=20)
    route = data.draw(routes(one, two, bk.FunctionProvider(local, name="local")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "_CEILINGS", (0.002,))  # who gets which answer is under test, not the waiting
        out = df.llm.classify(
            "text", CODES, route=route, progress=False, dedupe=data.draw(st.booleans()), details="full"
        )
    assert out.index.identical(df.index)
    assert list(out["code"]) == list(df["code"])
    answered = out["label"].notna().to_numpy()
    assert [label for label, ok in zip(out["label"], answered, strict=True) if ok] == [
        code for code, ok in zip(df["code"], answered, strict=True) if ok
    ]
    for answer, code, error in zip(out["label"], df["code"], out["label_error"], strict=True):
        # A reply may be invalid or cut twice in a row: then the row says so, and holds no other row's answer.
        assert (answer == code) or (code is None and pd.isna(error)) or error in {"invalid_answer", "truncated"}


@pytest.mark.skipif(not BANKING.is_file(), reason="the banking77 messages are not here")
def test_banking77_over_http_is_the_embedded_model_asked_directly():
    """3,080 messages, 77 labels, two providers with faults: every row answered, label for label as asked directly."""
    df = pd.read_csv(BANKING)
    labels = sorted(df["category"].unique())
    direct = df.llm.classify("text", labels, route=bk.Embedded(), progress=False)
    faults = {"server_errors": 0.03, "drops": 0.01, "garbage": 0.01}
    with bk.playground(seed=77, short=Server("openai", **faults), long=Server("anthropic", **faults)) as play:
        short, long = play.short.provider(max_concurrency=32), play.long.provider(max_concurrency=16)
        route = bk.when("text.str.len() > 60", long).otherwise(short)
        out = df.llm.classify("text", labels, route=route, progress=False)
        met = play.short.counts + play.long.counts
    assert all(met[fate] > 0 for fate in ("server_error", "drop", "garbage"))
    assert out["label_error"].isna().all()
    assert out["label"].tolist() == direct["label"].tolist()
    assert np.allclose(out["label_confidence"], direct["label_confidence"])
    assert (out["label_provider"] == np.where(df["text"].str.len() > 60, "long", "short")).all()
