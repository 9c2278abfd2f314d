"""run.retry(...): the failed and unfinished rows again, and the completed frame back."""

from __future__ import annotations

import _thread
import asyncio
import itertools
import threading

import pandas as pd
import pytest

import batchkit as bk
from batchkit.runs import run as runs


def classify(df, route, **settings):
    return df.llm.classify("text", ["a", "b"], route=route, progress=False, **settings)


def frame(count=6):
    return pd.DataFrame({"text": [f"row {number}" for number in range(count)]}, index=list("xxyyzz")[:count])


class Moody:
    """Answers nothing useful for some rows until its mood changes."""

    def __init__(self, bad):
        self.bad = set(bad)
        self.asked = []
        self.provider = bk.FunctionProvider(self.answer, name="moody")

    def answer(self, prompt):
        self.asked.append(str(prompt))
        return None if str(prompt) in self.bad else "a"


def test_only_what_failed_is_asked_again():
    """Rows that have their answer are not asked again; the frame comes back complete, under its own index."""
    moody = Moody(["row 1", "row 4"])
    df = frame()
    out = classify(df, moody.provider, details="full")
    assert out["label"].isna().sum() == 2
    moody.bad, moody.asked = set(), []
    done = bk.last_run().retry()
    assert sorted(moody.asked) == ["row 1", "row 4"]
    assert done["label"].tolist() == ["a"] * 6
    assert done["label_error"].isna().all()
    assert list(done.columns) == list(out.columns)
    assert (done.dtypes == out.dtypes).all()
    assert done.index.identical(df.index)
    assert bk.last_run().rows["status"].tolist() == ["answered"] * 6


def test_another_route_is_named_beside_the_first():
    """Retried at another provider, each row says who answered it."""
    moody = Moody(["row 2"])
    classify(frame(), moody.provider)
    done = bk.last_run().retry(route=bk.FunctionProvider(lambda _: "b", name="calm"))
    assert done["label"].tolist() == ["a", "a", "b", "a", "a", "a"]
    assert done["label_provider"].tolist() == ["moody", "moody", "calm", "moody", "moody", "moody"]
    assert set(done["label_provider"].cat.categories) == {"moody", "calm"}


def test_what_still_fails_can_be_tried_once_more():
    """A retry of a retry goes on from there; conditions of a route still see the whole frame."""
    moody = Moody(["row 1", "row 4"])
    classify(frame(), bk.when(lambda df: df["text"] != "row 0", moody.provider).otherwise(None))
    moody.bad = {"row 4"}
    once = bk.last_run().retry()
    assert once["label_error"].notna().tolist() == [False, False, False, False, True, False]
    moody.bad = set()
    twice = bk.last_run().retry()
    assert twice["label"].notna().tolist() == [False, True, True, True, True, True]
    assert bk.last_run().rows["status"].tolist()[0] == "unrouted"


def test_nothing_left_to_ask():
    """A retry without failed rows asks nobody and returns the frame as it is."""
    moody = Moody([])
    out = classify(frame(), moody.provider)
    moody.asked = []
    pd.testing.assert_frame_equal(bk.last_run().retry(), out)
    assert moody.asked == []


def test_unfinished_rows_are_asked_after_on_error_raise():
    """Rows that were never asked are asked, those that are done are not."""
    moody = Moody(["row 0"])
    moody.provider = bk.FunctionProvider(moody.answer, name="moody", max_concurrency=1)
    with pytest.raises(bk.RowFailed) as caught:
        classify(frame(), moody.provider, on_error="raise")
    assert len(moody.asked) < 8
    moody.bad = set()
    assert caught.value.run.retry()["label"].tolist() == ["a"] * 6


def test_smaller_concurrency_and_a_larger_cap_over_http():
    """The dead-letter habit in one call: fewer at once, and more room for the answer."""
    server = {"script": lambda text, nth: "truncated" if nth <= 2 else "ok", "latency": 0.01}
    with bk.playground(only=server, answer=lambda text, labels: labels[0]) as play:
        out = classify(frame(), play.only.provider("gpt-4o", max_concurrency=6))
        assert (out["label_error"] == "truncated").all()
        before = len(play.only.requests)
        done = bk.last_run().retry(max_concurrency=1, max_output_tokens=2000, delay=0.0)
        later = sorted(play.only.requests[before:], key=lambda request: request.arrived)
        assert all(a.answered <= b.arrived for a, b in itertools.pairwise(later))
    assert done["label"].tolist() == ["a"] * 6


def test_a_retry_that_cannot_be_is_refused_before_its_delay():
    """Nobody waits to hear that a route is none."""
    moody = Moody(["row 0"])
    classify(frame(), moody.provider)
    with pytest.raises(bk.ConfigError, match="no provider spec"):
        bk.last_run().retry(route="nope:x", delay=10_000.0)


def test_an_interrupted_retry_counts_what_its_frame_holds(monkeypatch):
    """What the first run answered is part of the frame that the message points to."""
    monkeypatch.setattr(runs, "_GRACE", 0.05)
    moody = Moody(["row 1", "row 4"])
    classify(frame(), moody.provider)
    asked = threading.Event()

    async def never(prompt):
        asked.set()
        await asyncio.Event().wait()

    def interrupt():
        asked.wait(30)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(bk.Interrupted, match=r"^4 of 6 rows are answered; bk\.last_run\(\)\.frame holds them"):
        bk.last_run().retry(route=bk.FunctionProvider(never))
    thread.join()
    assert bk.last_run().frame["label"].notna().sum() == 4


def test_a_cap_that_caps_nothing_is_refused():
    """A larger output cap for a function, which counts no tokens, is not ignored in silence."""
    moody = Moody(["row 0"])
    classify(frame(), moody.provider)
    with pytest.raises(bk.ConfigError, match="max_output_tokens=99 caps no reply here: moody counts no tokens"):
        bk.last_run().retry(max_output_tokens=99)


def test_labels_that_no_arrow_holds_survive_a_retry():
    """Lone surrogates, which pandas' own texts cannot hold, come back from a retry as they are."""
    moods = iter("??")
    provider = bk.FunctionProvider(lambda text: next(moods, "\ud801"), max_concurrency=1, name="\udfff")
    df = pd.DataFrame({"text": ["one", "two"]})
    df.llm.classify("text", ["\ud801", "x"], route=provider, progress=False, details="full")
    assert bk.last_run().retry()["label"].tolist() == ["\ud801"] * 2
    assert bk.last_run().rows["label"].tolist() == ["\ud801"] * 2


@pytest.mark.parametrize("limit", ["max_cost", "max_seconds"])
def test_a_run_that_reached_its_limit_goes_on_under_another(limit):
    """Without a word the limit of before holds anew; with another one the rows are finished under that."""
    with bk.playground(answer=lambda text, labels: labels[0], server={"latency": 0.1}) as play:
        provider = play.server.provider("gpt-4o", max_concurrency=1, max_output_tokens=500, price=(1, 1))
        least = {"max_cost": 0.001, "max_seconds": 0.05}[limit]
        out = classify(pd.DataFrame({"text": [f"row {number}" for number in range(30)]}), provider, **{limit: least})
        run = bk.last_run()
        assert run.snapshot.finished == limit
        left = out["label_error"].eq("budget").sum()
        assert 0 < left < 30
        again = run.retry()
        assert again["label_error"].eq("budget").sum() < left
        assert bk.last_run().snapshot.finished == limit
        done = run.retry(**{limit: 60.0})
        assert done["label"].tolist() == ["a"] * 30
        assert bk.last_run().snapshot.finished == "done"


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_concurrency": 0}, {"max_output_tokens": 1.5}, {"max_concurrency": True}, {"max_cost": 0},
        {"max_seconds": "1"}, {"delay": -1}, {"delay": "5"}, {"delay": float("nan")},
    ],
)  # fmt: skip
def test_wrong_values_are_refused(wrong):
    """A limit that cannot be is refused before anything is asked."""
    moody = Moody(["row 0"])
    classify(frame(), moody.provider)
    moody.asked = []
    with pytest.raises(bk.ConfigError, match=next(iter(wrong))):
        bk.last_run().retry(**wrong)
    assert moody.asked == []
