"""`bk.observe`: every event of every run, in order, in a thread of its own, and nothing while nobody observes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

import batchkit as bk
from batchkit import events

ROOT = Path(__file__).parent.parent
SECRET = "sk-very-secret-0123456789abcdef"


def frame(count=6):
    return pd.DataFrame({"text": [f"row {number}" for number in range(count)]})


def classify(df, route, **settings):
    return df.llm.classify("text", ["x", "y"], route=route, progress=False, **settings)


def kinds(heard):
    return [type(event).__name__ for event in heard]


def of(heard, kind):
    return [event for event in heard if type(event) is kind]


echo = bk.FunctionProvider(lambda prompt: "x", name="echo")


# ---- what is told -----------------------------------------------------------------------------------


def test_a_run_is_told_from_start_to_end():
    """A run starts, each request leaves and ends before its row is settled, and nothing comes after the end."""
    heard = []
    with bk.observe(heard.append):
        classify(frame(3), bk.FunctionProvider(lambda prompt: "x", name="one", max_concurrency=1))
    assert kinds(heard) == ["Started", *["Sent", "Attempted", "Settled"] * 3, "Finished"]
    start, end = heard[0], heard[-1]
    assert (start.task, start.rows, start.providers) == ("classify", 3, ("one",))
    assert (end.why, end.rows, end.answered, end.failed) == ("done", 3, 3, 0)
    assert {event.run for event in heard} == {bk.last_run().number}
    assert [event.row for event in of(heard, events.Settled)] == [0, 1, 2]
    assert sorted(event.at for event in heard) == [event.at for event in heard]


def test_the_events_agree_with_the_runs_requests():
    """There is an `Attempted` for each row of `run.requests`, with the same values in the same order."""
    heard = []

    steps = {"0": "rate_limit_ms", "1": "fenced", "2": "refusal", "3": "context_length"}

    def script(text, nth):
        return steps.get(text[-1], "ok") if nth == 1 else "ok"

    with bk.playground(answer=lambda text, labels: "x", busy={"script": script}) as play, bk.observe(heard.append):
        out = classify(frame(40), play.busy.provider(price=(1.0, 2.0)))
    run = bk.last_run()
    told = pd.DataFrame(of(heard, events.Attempted))
    known = run.requests
    assert len(known) > 40
    assert len(of(heard, events.Sent)) == len(known)
    for name in events.Attempted._fields[2:]:
        pairs = [[None if pd.isna(value) else value for value in table[name]] for table in (told, known)]
        assert pairs[0] == pairs[1], name
    settled = of(heard, events.Settled)
    assert sum(event.rows for event in settled if event.error is None) == out["label"].notna().sum()
    assert heard[-1].answered == run.snapshot.answered


def test_equal_rows_are_told_once_and_known_answers_as_reused(tmp_path):
    """A settled event says how many rows it concerns, and whether their answer was paid for before."""
    df = pd.DataFrame({"text": ["same", "other", "same"]})
    provider = bk.FunctionProvider(lambda prompt: "x", name="kept", version="1")
    classify(df, provider, journal=tmp_path / "journal")
    heard = []
    with bk.observe(heard.append):
        classify(df, provider, journal=tmp_path / "journal")
    assert kinds(heard) == ["Started", "Settled", "Settled", "Finished"]
    assert [(event.row, event.rows, event.reused) for event in of(heard, events.Settled)] == [
        (0, 2, True),
        (1, 1, True),
    ]


def test_what_befalls_a_provider_is_told():
    """A pause, another manner of asking and a stop are events with the provider's name and what was said."""
    heard = []
    servers = {
        "busy": {"script": ["rate_limit_seconds"], "refuses": ["temperature"]},
        "locked": {"api_key": "another-key-entirely"},
    }
    with bk.playground(answer=lambda text, labels: "x", **servers) as play, bk.observe(heard.append):
        classify(frame(2), play.busy.provider(temperature=0.5, max_concurrency=1))
        with pytest.warns(bk.BatchkitWarning, match="stopped"):
            classify(frame(2), play.locked.provider(api_key=SECRET))
    (pause,), (stop,) = of(heard, events.Paused), of(heard, events.Stopped)
    (adapted,) = of(heard, events.Adapted)
    assert "temperature" in adapted.how
    assert pause.provider == play.busy.provider().name
    assert 0 < pause.seconds <= 1
    assert (stop.error, stop.provider) == ("auth", play.locked.provider().name)
    assert SECRET not in repr(heard)


def test_no_event_holds_what_a_cell_says():
    """Cell text and answers are in no event."""
    heard = []
    with bk.observe(heard.append):
        classify(pd.DataFrame({"text": ["a very private matter"]}), echo)
    assert "private" not in repr(heard)
    assert "'x'" not in repr(heard)


def test_a_cancelled_run_says_how_far_it_got():
    """The end of a cancelled run counts what was done; rows not got to have no event of their own."""
    heard, held = [], threading.Event()

    async def answer(prompt):
        if prompt != "row 0":
            held.set()
            await asyncio.sleep(60)
        return "x"

    with bk.observe(heard.append):
        route = bk.FunctionProvider(answer, name="slow", max_concurrency=2, timeout=120)
        job = frame(6).llm.background.classify("text", ["x", "y"], route=route, progress=False)
        held.wait(30)
        job.run._halt("cancelled", 0.0)
        job.result()
    assert (heard[-1].why, heard[-1].rows, heard[-1].failed) == ("cancelled", 6, 0)
    assert heard[-1].answered == len(of(heard, events.Settled)) == 1
    assert len(of(heard, events.Attempted)) == len(job.run.requests)


def test_runs_inside_runs_are_told_apart():
    """Events of a run that a function starts have a number of their own, and each run's are in order."""
    heard = []

    def inner(prompt):
        classify(pd.DataFrame({"text": [str(prompt)]}), echo)
        return "x"

    with bk.observe(heard.append):
        classify(frame(3), bk.FunctionProvider(inner, name="outer"))
    runs = Counter(event.run for event in heard)
    assert sorted(runs.values()) == [5, 5, 5, 2 + 3 * 3]
    for run in runs:
        own = kinds([event for event in heard if event.run == run])
        assert (own[0], own[-1]) == ("Started", "Finished")
        assert own.count("Sent") == own.count("Attempted") == own.count("Settled")


def test_single_calls_are_runs_of_one_row():
    """A provider's `check` is told as well: it costs what a request costs."""
    heard = []
    with bk.observe(heard.append):
        bk.FunctionProvider(lambda prompt: "billing", name="checked").check()
    assert kinds(heard) == ["Started", "Sent", "Attempted", "Settled", "Finished"]


def test_batches_of_a_collector_are_told():
    """A `RunnableBatch` tells of each batch under its name, with what its own hook gets."""
    heard, reports = [], []
    settings = {"max_batch_size": 2, "max_batch_time": 60, "name": "lengths", "on_batch": reports.append}
    runnable = bk.RunnableBatch(batch_fn=list, **settings)
    with bk.observe(heard.append), runnable:
        runnable.batch([1, 2, 3, 4])
    assert kinds(heard) == ["Batched", "Batched"]
    assert [(event.collector, event.size, event.failed, event.error) for event in heard] == [
        ("lengths", 2, 0, None)
    ] * 2
    assert [event.seconds for event in heard] == [report.seconds for report in reports]


# ---- who hears --------------------------------------------------------------------------------------


def test_without_an_observer_no_event_is_made(monkeypatch):
    """While nobody observes, not one event object is built."""

    def refuse(*args):
        raise AssertionError("an event was made for nobody")

    with bk.observe(lambda event: None):
        pass
    for name in events.__all__:
        monkeypatch.setattr(events, name, refuse)
    out = classify(frame(20), echo)
    assert out["label"].tolist() == ["x"] * 20
    assert bk.RunnableBatch(batch_fn=list, max_batch_size=2).batch([1, 2]) == [1, 2]


def test_several_observers_hear_the_same_each_in_its_own_thread():
    """Every observer gets all events, in the same order, in one thread that is nobody else's."""
    heard, threads = ([], []), (set(), set())

    def note(number):
        def fn(event):
            heard[number].append(event)
            threads[number].add(threading.current_thread())

        return fn

    with bk.observe(note(0)), bk.observe(note(1)):
        classify(frame(20), echo)
    assert heard[0] == heard[1]
    assert len(heard[0]) == 2 + 3 * 20
    (first,), (second,) = threads
    assert first is not second
    assert (first.name, first.daemon) == ("batchkit-observer", True)


def test_a_slow_observer_slows_no_run_and_close_delivers_the_rest():
    """A run ends while its observer still looks at the first event, and `close` returns when it has had them all."""
    go_on, heard = threading.Event(), []

    def slow(event):
        go_on.wait(30)
        heard.append(event)

    observer = bk.observe(slow)
    classify(frame(50), echo)
    assert heard == []
    go_on.set()
    observer.close()
    assert len(heard) == 2 + 3 * 50
    observer.close()
    assert repr(observer).endswith("slow: closed>")


def test_after_close_nothing_is_heard():
    """An observer hears what happened between `observe` and `close`, and no more."""
    heard = []
    observer = bk.observe(heard.append)
    assert repr(observer).endswith("append: listens>")
    classify(frame(1), echo)
    observer.close()
    count = len(heard)
    classify(frame(1), echo)
    assert len(heard) == count == 5


def test_an_observer_may_close_itself():
    """`close` from inside the function does not wait for itself."""
    heard = []

    def once(event):
        heard.append(event)
        observer.close()

    observer = bk.observe(once)
    classify(frame(1), echo)
    observer._thread.join(30)
    assert not observer._thread.is_alive()
    assert isinstance(heard[0], events.Started)


@pytest.mark.parametrize("error", [ValueError("no luck"), SystemExit(3)])
def test_an_observer_that_raises_is_dropped_with_one_warning(error):
    """It hears nothing more, its error is kept, the run goes on and other observers hear all of it."""
    heard, calls = [], []

    def broken(event):
        calls.append(event)
        raise error

    with bk.observe(heard.append), pytest.warns(bk.BatchkitWarning, match="broken failed") as caught:  # noqa: PT031
        observer = bk.observe(broken)
        out = classify(frame(4), echo)
        observer.close()
    assert out["label"].tolist() == ["x"] * 4
    assert (len(calls), len(caught), observer.error) == (1, 1, error)
    assert len(heard) == 2 + 3 * 4
    assert repr(observer).endswith("broken: dropped>")


def test_an_observer_may_start_runs():
    """A function that is told may itself call a verb, since no engine waits for it."""
    heard, inside = [], []

    def curious(event):
        heard.append(event)
        if isinstance(event, events.Finished) and not inside:
            inside.append(1)
            inside.extend(classify(frame(1), echo)["label"])

    observer = bk.observe(curious)
    classify(frame(1), echo)
    observer.close()
    assert inside == [1, "x"]


@pytest.mark.parametrize("given", [3, None, asyncio.sleep])
def test_what_cannot_observe_is_refused(given):
    """Only a plain function is taken, and an unknown keyword names the nearest."""
    with pytest.raises(bk.ConfigError, match="observe"):
        bk.observe(given)
    with pytest.raises(bk.UnknownKeyword, match="Did you mean 'fn'"):
        bk.observe(fnn=print)


# ---- processes --------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_no_observers():
    """In a forked child nothing is told, closing an inherited handle is harmless, and a new one works."""
    heard = []
    with bk.observe(heard.append) as observer:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                classify(frame(2), echo)
                assert heard == []
                observer.close()
                with bk.observe(heard.append):
                    classify(frame(1), echo)
                assert len(heard) == 5
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        classify(frame(1), echo)
    assert len(heard) == 5


AT_EXIT = """
    import sys, time
    import pandas as pd
    import batchkit as bk

    async def answer(prompt):
        import asyncio
        await asyncio.sleep(60)

    def note(event):
        time.sleep(0.01)
        sys.stdout.write(type(event).__name__ + " ")
        sys.stdout.flush()

    bk.observe(note)
    df = pd.DataFrame({"text": ["a", "b"]})
    df.llm.classify("text", ["x", "y"], route=bk.FunctionProvider(lambda prompt: "x"), progress=False, journal=False)
    df.llm.background.classify("text", ["x", "y"], route=bk.FunctionProvider(answer), progress=False, journal=False)
"""


def test_what_is_pending_at_exit_is_delivered():
    """At the end of the process an observer still hears all that happened, the end of a background run included."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(AT_EXIT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.split()
    assert (told.count("Started"), told.count("Settled"), told.count("Finished")) == (2, 2, 2)
    assert told[-1] == "Finished"
