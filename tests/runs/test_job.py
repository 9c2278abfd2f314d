"""Runs in the background, and runs that are awaited."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pandas as pd
import pytest

import batchkit as bk


def frame(count=6):
    return pd.DataFrame({"text": [f"row {number}" for number in range(count)]}, index=list("abcdefghij")[:count])


class Gate:
    """A provider that answers some rows at once and holds the others until it is told."""

    def __init__(self, at_once=0, slots=2):
        self.held = threading.Event()
        self.release = threading.Event()
        self.asked = []
        self._at_once = at_once
        self.provider = bk.FunctionProvider(self.answer, name="gate", max_concurrency=slots)

    def answer(self, prompt):
        self.asked.append(str(prompt))
        if len(self.asked) > self._at_once:
            self.held.set()
            self.release.wait(30)
        return "x"


@pytest.fixture
def gate():
    gate = Gate(at_once=2)
    yield gate
    gate.release.set()


def background(df, route, **settings):
    return df.llm.background.classify("text", ["x", "y"], route=route, progress=False, **settings)


# ---- background -------------------------------------------------------------------------------------


def test_a_job_comes_back_at_once_and_gives_the_frame_in_the_end(gate):
    """While it goes on a job shows what is done; its result is what the verb returns."""
    df = frame()
    job = background(df, gate.provider)
    gate.held.wait(30)
    assert not job.done
    assert job.progress.rows == 6
    assert job.partial()["label"].notna().sum() <= 2
    assert job.run is bk.last_run()
    gate.release.set()
    out = job.result()
    assert job.done
    assert out["label"].tolist() == ["x"] * 6
    assert out.index.identical(df.index)
    assert job.result()["label"].tolist() == ["x"] * 6


def test_a_series_job_gives_a_series():
    """On a Series the result is the answers alone."""
    job = frame()["text"].llm.background.classify(["x"], route=bk.FunctionProvider(lambda _: "x"), progress=False)
    assert job.result().tolist() == ["x"] * 6


def test_several_jobs_at_once():
    """Jobs that go on at the same time each get their own rows' answers."""
    echo = bk.FunctionProvider(lambda prompt: prompt.split()[-1], name="echo")
    frames = [pd.DataFrame({"text": [f"{name} {name}"] * 3}) for name in "abc"]
    jobs = [df.llm.background.classify("text", list("abc"), route=echo, progress=False) for df in frames]
    assert [job.result()["label"].tolist() for job in jobs] == [["a"] * 3, ["b"] * 3, ["c"] * 3]


def test_cancel_returns_what_is_done(gate):
    """A cancelled job starts nothing new and returns the frame with the rest marked cancelled."""
    job = background(frame(10), gate.provider)
    gate.held.wait(30)
    job.cancel()
    out = job.result()
    assert out["label"].notna().sum() == 2
    assert (out.loc[out["label"].isna(), "label_error"] == "cancelled").all()
    assert len(gate.asked) <= 4


def test_reprs_say_how_far_it_is(gate):
    """A job, its progress and its run say in one line what is answered, under way, and not got to."""
    job = background(frame(10), gate.provider)
    gate.held.wait(30)
    assert repr(job).startswith("<Job running: ")
    assert "of 10 rows answered, 0 failed" in repr(job.progress)
    assert repr(job.progress).endswith("in flight>")
    job.cancel()
    job.result()
    assert repr(job) == "<Job cancelled: 2 of 10 rows answered, 0 failed, 8 cancelled>"
    assert repr(job.run) == repr(job).replace("Job", "Run")
    assert repr(job.progress) == repr(job).replace("Job", "Snapshot")
    assert repr(job.progress.lanes[0]).startswith("<gate: 2 answered, 0 failed, ")


def test_waiting_can_time_out_without_harm(gate):
    """A wait that is too short raises; the job goes on."""
    job = background(frame(), gate.provider)
    with pytest.raises(TimeoutError, match="still goes on"):
        job.result(timeout=0.01)
    gate.release.set()
    assert job.result()["label"].notna().all()


def test_rows_come_as_they_are_done():
    """as_completed gives each row once, in the order in which rows are done, equal rows together."""
    df = pd.DataFrame({"text": ["slow", "fast", "", "fast", "bad"]}, index=[5, 5, 6, 7, 8])
    turn = threading.Event()

    def answer(prompt):
        if prompt == "slow":
            turn.wait(30)
        return None if prompt == "bad" else "x"

    job = background(df, bk.FunctionProvider(answer, name="f"))
    rows = job.as_completed()
    first = [next(rows), next(rows), next(rows)]
    turn.set()
    every = first + list(rows)
    assert sorted(row.row for row in every) == [0, 1, 3, 4]
    assert every[-1].row == 0
    assert {row.row: (row.index, row.answer, row.error) for row in every} == {
        0: (5, "x", None), 1: (5, "x", None), 3: (7, "x", None), 4: (8, None, "invalid_answer"),
    }  # fmt: skip


def test_what_went_wrong_is_told_by_the_result():
    """A stopped provider is warned of, and on_error="raise" raises, where the result is taken."""
    job = background(frame(), bk.OpenAI("m", base_url="http://127.0.0.1:9", api_key="sk-x", name="dead"))
    with pytest.warns(bk.BatchkitWarning, match="dead was stopped"):
        out = job.result()
    assert (out["label_error"] == "connection").all()
    with pytest.raises(bk.RowFailed):
        background(frame(), bk.FunctionProvider(lambda _: None, name="f"), on_error="raise").result()


def test_bad_input_is_refused_at_once():
    """What can be known before anything is sent raises where the job is started."""
    with pytest.raises(bk.ColumnError):
        frame().llm.background.classify("nope", ["x"], route=bk.Embedded())
    with pytest.raises(bk.ConfigError, match="background"):
        background(frame(), bk.FunctionProvider(lambda _: "x", loop="caller"))


# ---- aio ----------------------------------------------------------------------------------------------


def test_aio_methods_are_coroutine_functions():
    """The methods of aio say of themselves that they are to be awaited."""
    assert inspect.iscoroutinefunction(frame().llm.aio.classify)
    assert inspect.iscoroutinefunction(frame()["text"].llm.aio.classify)


@pytest.mark.asyncio
async def test_awaiting_leaves_the_loop_free():
    """While a run is awaited other tasks of the loop go on, and the frame comes back."""
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async def answer(prompt):
        await asyncio.sleep(0.02)
        return "x"

    ticking = asyncio.create_task(tick())
    out = await frame().llm.aio.classify("text", ["x", "y"], route=bk.FunctionProvider(answer), progress=False)
    ticking.cancel()
    assert out["label"].tolist() == ["x"] * 6
    assert len(ticks) > 3


@pytest.mark.asyncio
async def test_functions_of_the_callers_loop_run_there():
    """loop="caller" needs no patched loop where the run is awaited."""
    loops = []

    async def answer(prompt):
        loops.append(asyncio.get_running_loop())
        return "x"

    route = bk.FunctionProvider(answer, loop="caller", name="f")
    out = await frame()["text"].llm.aio.classify(["x"], route=route, progress=False)
    assert out.tolist() == ["x"] * 6
    assert set(loops) == {asyncio.get_running_loop()}


@pytest.mark.asyncio
async def test_cancellation_stays_cancelled_error(gate):
    """A cancelled task raises CancelledError; nothing new is sent and what is done is kept."""
    task = asyncio.create_task(frame(10).llm.aio.classify("text", ["x", "y"], route=gate.provider, progress=False))
    await asyncio.to_thread(gate.held.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = bk.last_run()
    assert run.frame["label"].notna().sum() == 2
    assert run.snapshot.finished == "cancelled"
    assert len(gate.asked) <= 4


@pytest.mark.asyncio
async def test_several_at_once_on_one_loop():
    """Runs gathered on one loop each get their own answers."""
    echo = bk.FunctionProvider(lambda prompt: prompt.split()[-1], name="echo")
    frames = [pd.DataFrame({"text": [f"{name} {name}"] * 3}) for name in "abc"]
    found = await asyncio.gather(
        *(df.llm.aio.classify("text", list("abc"), route=echo, progress=False) for df in frames)
    )
    assert [out["label"].tolist() for out in found] == [["a"] * 3, ["b"] * 3, ["c"] * 3]
