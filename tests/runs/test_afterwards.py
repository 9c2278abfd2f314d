"""What is done to the user's frame after a verb was called changes nothing of the run, and no old column belies it."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest

import batchkit as bk

# pandas 3.1 warns of it, and people do it.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")
NAMES = ["confidence", "provider", "error"]


def echo(prompt):
    """Answer with the text's first letter."""
    return str(prompt)[0].upper()


def frame():
    return pd.DataFrame({"text": ["b1", "a1", "b2", "a2"]}, index=[3, 1, 2, 1])


def sort(df):
    df.sort_values("text", inplace=True)


def drop(df):
    df.drop(df.index[:2], inplace=True)


def edit(df):
    df.iloc[0, 0] = "a9"


def grow(df):
    df.loc[9] = "a9"


def label(df):
    df["label"] = "gold"


def rename(df):
    df.columns = ["other"]


CHANGES = [sort, drop, edit, grow, label, rename]
WANTED = pd.DataFrame({"text": ["b1", "a1", "b2", "a2"], "label": list("BABA")}, index=[3, 1, 2, 1])


def right(out):
    """Whether every answer stands beside its own text, under its own label."""
    return out[["text", "label"]].astype(object).equals(WANTED.astype(object))


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_is_carried_out_as_it_was_made(change):
    """A frame that is changed in place between plan and run gets the answers of the rows that were planned."""
    df = frame()
    plan = df.llm.plan.classify("text", ["A", "B"], route=bk.FunctionProvider(echo), progress=False)
    change(df)
    assert right(plan.run())


def test_a_plan_asks_whom_it_said_it_would():
    """A condition that is changed between plan and run changes nobody's provider."""
    mask = np.array([True, False, True, False])
    one, other = bk.FunctionProvider(echo, name="one"), bk.FunctionProvider(echo, name="other")
    route = bk.when(mask, one).when(lambda df: mask, one).otherwise(other)
    plan = frame().llm.plan.classify("text", ["A", "B"], route=route, sample=1, progress=False)
    mask[:] = ~mask
    assert plan.run()["label_provider"].astype(object).tolist() == ["one", "other", "one", "other"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_shows_the_frame_that_it_asked_about(change):
    """A frame that is changed in place after a run leaves the run, and what retries it, as they were."""
    df = frame()
    moods = iter(["?", "?"])
    provider = bk.FunctionProvider(lambda text: next(moods, echo(text)), max_concurrency=1)
    df.llm.classify("text", ["A", "B"], route=provider, progress=False)
    run = bk.last_run()
    change(df)
    assert run.failed["text"].tolist() == ["b1"]
    assert (
        run.frame["text"].tolist() == run.rows.set_axis(range(4)).assign(text=WANTED["text"].tolist())["text"].tolist()
    )
    assert right(run.retry())


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_gives_back_the_frame_that_it_began_with(change):
    """A frame may be changed in place while a job is at it."""
    df = frame()
    may_answer = threading.Event()

    def late(prompt):
        may_answer.wait(30)
        return echo(prompt)

    job = df.llm.background.classify("text", ["A", "B"], route=bk.FunctionProvider(late), progress=False)
    change(df)
    may_answer.set()
    assert right(job.result())


@pytest.mark.parametrize("details", [False, True, "full"])
@pytest.mark.parametrize("before", [True, "full"])
def test_no_column_of_an_earlier_output_stays_beside_a_new_one(before, details):
    """What a call does not write is gone: not the provider, the message or the cost of an answer that was replaced."""
    good, bad = bk.FunctionProvider(echo, name="good"), bk.FunctionProvider(lambda _: "?", name="bad")
    first = frame().llm.classify("text", ["A", "B"], route=good, details=before, progress=False)
    second = first.llm.classify("text", ["A", "B"], route=bad, details=details, progress=False)
    fresh = frame().llm.classify("text", ["A", "B"], route=bad, details=details, progress=False)
    assert set(second.columns) == set(fresh.columns)
    assert second["label"].isna().all()
    handed_over = bk.last_run().failed
    assert set(handed_over.columns) == {"text", "label_provider", "label_error", "label_message"}
    first.llm.classify("text", ["A", "B"], route=bad, details=details, progress=False)
    assert set(bk.last_run().failed.columns) == {"text", "label_provider", "label_error", "label_message"}


def test_a_column_of_the_users_own_stays():
    """One that is only named like a detail is kept, and so is all that the route's conditions look at."""
    out = frame().llm.classify("text", ["A", "B"], route=bk.FunctionProvider(echo, name="good"), progress=False)
    out["label_message"] = "mine"
    only = bk.when("label == 'A'", bk.FunctionProvider(lambda _: "B", name="other")).otherwise(None)
    again = out.llm.classify("text", ["A", "B"], route=only, progress=False)
    assert again["label_message"].tolist() == ["mine"] * 4
    assert again["label_provider"].astype(object).tolist()[1] == "other"
    assert [name for name in NAMES if f"label_{name}" in again] == NAMES
