"""What a run shows of itself: rows, requests, summary, and how it ends when it is stopped."""

from __future__ import annotations

import _thread
import copy
import pickle
import sys
import threading

import pandas as pd
import pytest

import batchkit as bk
from batchkit._engine import bridge
from batchkit._logic import pacing
from batchkit.runs import run as runs


def classify(df, route, **settings):
    return df.llm.classify("text", ["a", "b"], route=route, progress=False, **settings)


def frame(count):
    return pd.DataFrame({"text": [f"a {i}" for i in range(count)]})


class Gate:
    """A provider that answers some rows at once and holds the others until it is told."""

    def __init__(self, at_once, slots=4):
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
        return "a"


@pytest.fixture
def gate():
    gate = Gate(at_once=5)
    yield gate
    gate.release.set()


def test_rows_say_everything_about_each_row():
    """run.rows is aligned with the index and gives status, answer and details of each row."""
    df = pd.DataFrame({"text": ["a", "", "?", "a"]}, index=["i", "i", "j", None])
    classify(df, bk.FunctionProvider(lambda prompt: str(prompt), name="echo"))
    rows = bk.last_run().rows
    assert rows.index.identical(df.index)
    assert rows["status"].tolist() == ["answered", "blank", "failed", "answered"]
    assert rows["label"].tolist()[0] == "a"
    assert rows["attempts"].tolist() == [1, 0, 2, 0]
    assert rows["error"].tolist()[2] == "invalid_answer"
    assert "no valid answer, asked twice: '?'" in rows["message"].tolist()[2]


def test_unrouted_rows_are_marked():
    """Rows routed to None are asked of nobody and marked unrouted."""
    df = frame(3)
    route = bk.split({bk.FunctionProvider(lambda _: "a", name="f"): 1, None: ...})
    out = classify(df, route)
    assert bk.last_run().rows["status"].tolist() == ["answered", "unrouted", "unrouted"]
    assert out["label_error"].isna().all()


def test_requests_hold_every_attempt_over_http(monkeypatch):
    """run.requests has a row per attempt, with tokens, ids and the errors of the ones that failed."""
    from batchkit._playground import Server

    monkeypatch.setattr(pacing, "_CEILINGS", (0.002,))  # what is written down is under test, not how long it takes
    with bk.playground(seed=1, only=Server(server_errors=0.3), answer=lambda text, labels: labels[0]) as play:
        out = classify(frame(20), play.only.provider(max_concurrency=4))
        drawn = play.only.counts
    run = bk.last_run()
    requests = run.requests
    assert out["label"].tolist() == ["a"] * 20
    assert drawn["server_error"] > 0
    assert len(requests) == drawn.total()
    assert requests["error"].notna().sum() == drawn["server_error"]
    assert (requests.loc[requests["error"].isna(), "tokens_in"] > 0).all()
    assert requests.loc[requests["error"].isna(), "request_id"].notna().all()
    assert requests.loc[requests["error"].notna(), "status"].tolist() == [500] * drawn["server_error"]
    assert sorted(set(requests["row"])) == list(range(20))
    summary = run.summary
    assert summary.loc["only", "attempts"] == drawn.total()
    assert summary.loc["only", "answered"] == 20
    assert run.cost.tokens_in == requests["tokens_in"].sum() == summary["tokens_in"].sum()
    assert run.cost.usd is None
    assert summary["cost"].isna().all()


def test_tokens_of_a_shared_request_are_counted_once():
    """Equal rows share a request; its tokens stand at the first of them only."""
    with bk.playground(answer=lambda text, labels: labels[0]) as play:
        classify(pd.DataFrame({"text": ["same"] * 5}), play.fast.provider())
    rows = bk.last_run().rows
    assert (rows["tokens_in"] > 0).tolist() == [True, False, False, False, False]
    assert rows["attempts"].tolist() == [1, 0, 0, 0, 0]
    assert rows["tokens_in"].sum() == bk.last_run().cost.tokens_in


def test_reprs_name_the_state():
    """A run's repr says how it ended and how many rows are answered; its HTML holds the summary."""
    classify(frame(2), bk.FunctionProvider(lambda _: "a", name="<b>f</b>"))
    run = bk.last_run()
    assert repr(run) == "<Run done: 2 of 2 rows answered, 0 failed>"
    assert "&lt;b&gt;f" in run._repr_html_()
    assert "<b>f</b>" not in run._repr_html_()


def test_interrupt_keeps_what_is_done(gate):
    """An interrupt raises Interrupted with the counts, keeps finished rows, and nothing new is sent."""

    def interrupt():
        gate.held.wait(30)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(bk.Interrupted, match=r"5 of 50 rows are answered; bk\.last_run\(\)\.frame"):
        classify(frame(50), gate.provider)
    thread.join()
    run = bk.last_run()
    asked = len(gate.asked)
    assert asked <= 5 + 4
    out = run.frame
    assert out["label"].notna().sum() == 5
    assert (out.loc[out["label"].isna(), "label_error"] == "cancelled").all()
    assert set(run.rows["status"]) == {"answered", "pending"}
    gate.release.set()
    assert len(gate.asked) == asked
    assert run.frame["label"].notna().sum() == 5


class _Strike:
    """Raises KeyboardInterrupt before the n-th line of ours that this thread runs to begin a run and wait for it."""

    def __init__(self, nth):
        self._left = nth
        self._frame = None

    def __call__(self, frame, event, arg):
        if frame.f_code is runs._wait.__code__:
            self._frame = frame
        return self._line if self._frame is not None else None

    def _line(self, frame, event, arg):
        if event == "return" and frame is self._frame:
            self._frame = None
        # Not on the way out of a ``with`` over a lock, where no signal is heard.
        ours = "batchkit" in frame.f_globals["__name__"] and frame.f_code is not bridge.loop.__code__
        if event == "line" and self._frame is not None and ours:
            self._left -= 1
            if not self._left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


def test_an_interrupt_at_any_moment_leaves_nothing_running():
    """Wherever Ctrl-C strikes while a run begins, it is an `Interrupted`, and nothing is asked afterwards."""
    provider = bk.FunctionProvider(lambda prompt: "a", name="f", max_concurrency=1)
    classify(frame(1), provider)
    outside = early = 0
    for nth in range(1, 1000):
        sys.settrace(_Strike(nth))
        try:
            classify(frame(3), provider)
            outside += 1
        except bk.Interrupted:
            pass
        except KeyboardInterrupt:
            early += 1
        finally:
            missed = sys.gettrace() is not None
            sys.settrace(None)
        run = bk.last_run()
        assert run.snapshot.finished or not run._has_begun
        if missed:
            break
    assert nth > 50
    assert outside == 1  # the last one, which ended before the strike
    assert early <= 2  # before anything had begun
    assert classify(frame(3), provider)["label"].tolist() == ["a"] * 3


def test_interrupted_is_no_ordinary_exception():
    """Interrupted passes through `except Exception`, so that "Run all" stops."""
    assert issubclass(bk.Interrupted, KeyboardInterrupt)
    assert not issubclass(bk.Interrupted, Exception)


@pytest.mark.parametrize("keep", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_run_that_cannot_be_kept_says_what_can(keep):
    """Pickling a run is refused with its frames as the way out; those can be."""
    classify(frame(2), bk.FunctionProvider(lambda _: "a"))
    run = bk.last_run()
    with pytest.raises(TypeError, match=r"cannot be pickled or copied\. Keep its frames: \.frame, \.rows"):
        keep(run)
    for kept in (run.frame, run.rows, run.requests, run.summary):
        keep(kept)


def test_cancel_from_another_thread_returns_the_frame(gate):
    """Cancel ends the wait with the frame: finished rows kept, the rest marked cancelled."""

    def cancel():
        gate.held.wait(30)
        bk.last_run().cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    out = classify(frame(50), gate.provider, details="full")
    thread.join()
    assert out["label"].notna().sum() == 5
    assert out["label_error"].value_counts()["cancelled"] == 45
    assert out["label_message"].dropna().unique().tolist() == [
        "asked, but not answered: the run was cancelled",
        "not asked: the run was cancelled",
    ]
    assert len(gate.asked) <= 5 + 4


def test_last_run_is_the_latest_that_started():
    """bk.last_run() is the run that started last, also when it was refused rows or failed."""
    classify(frame(1), bk.FunctionProvider(lambda _: "a", name="f"))
    first = bk.last_run()
    with pytest.raises(bk.ConfigError):
        classify(frame(1), None)
    assert bk.last_run() is first
    classify(frame(1), bk.FunctionProvider(lambda _: "nonsense", name="f"))
    assert bk.last_run() is not first


# ---- providers that must stop -------------------------------------------------------------------------


def wrong_key(play):
    return play.only.provider(api_key="sk-wrong-key-123456", max_concurrency=4)


def no_such_model(play):
    return play.only.provider("no-such-model", max_concurrency=4)


def nobody_there(play):
    return bk.OpenAI("m", base_url="http://127.0.0.1:9/v1", api_key="sk-x", max_concurrency=4)


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("provider", "kind", "hint"),
    [
        (wrong_key, "auth", "401"),
        (no_such_model, "config", "no-such-model"),
        (nobody_there, "connection", "Start the server first"),
    ],
)
def test_a_fault_of_every_row_stops_the_provider(dialect, provider, kind, hint):
    """What only the provider can know ends in the rows after at most max(3, slots) requests, with one warning."""
    from batchkit._playground import Server

    server = Server(dialect=dialect, api_key="sk-right", models=("known",))
    with bk.playground(only=server, answer=lambda text, labels: labels[0]) as play:
        with pytest.warns(bk.BatchkitWarning, match=kind) as warned:
            out = classify(frame(60), provider(play), details="full")
        assert len(play.only.requests) <= 4
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert out["label"].isna().all()
    assert (out["label_error"] == kind).all()
    assert out["label_message"].str.contains(hint, regex=False).all()
    assert not out["label_message"].str.contains("sk-wrong-key-123456").any()
    assert len(bk.last_run().requests) <= 4
    assert kind in bk.last_run().summary["stopped"].iloc[0]


def test_a_dead_provider_harms_nobody_elses_rows():
    """In a balance the living provider answers all; in a split only the dead one's own rows fail."""
    with bk.playground(answer=lambda text, labels: labels[0]) as play:
        dead = bk.OpenAI("m", base_url="http://127.0.0.1:9", api_key="sk-x", name="dead")
        with pytest.warns(bk.BatchkitWarning):
            out = classify(frame(40), bk.balance(dead, play.fast.provider()))
        assert out["label"].notna().all()
        with pytest.warns(bk.BatchkitWarning):
            out = classify(frame(40), bk.split({dead: 10, play.fast.provider(): ...}))
        assert out["label"].isna().tolist() == [True] * 10 + [False] * 30
        assert (out["label_error"].iloc[:10] == "connection").all()


def test_summary_is_said_first_with_progress(capsys):
    """With a progress line on, a stopped provider is named before the numbers, and there is no warning."""
    df = frame(3)
    dead = bk.OpenAI("m", base_url="http://127.0.0.1:9", api_key="sk-x", name="dead")
    df.llm.classify("text", ["a", "b"], route=dead, progress=True)
    said = capsys.readouterr().err
    assert "dead: stopped (connection)" in said
    assert "0 of 3 rows answered, 3 failed" in said


# ---- pictures -----------------------------------------------------------------------------------------


def test_a_run_draws_itself():
    """Each plot of a run is a figure with a picture of its own; ax= is drawn into and given back."""
    from matplotlib.figure import Figure

    classify(frame(5), bk.FunctionProvider(lambda _: "a", name="f"))
    run = bk.last_run()
    for draw in (run.plot, run.plot_timeline, run.plot_latency, run.plot_throughput):
        assert draw()._repr_png_().startswith(b"\x89PNG")
    ax = Figure().subplots()
    assert run.plot_timeline(ax=ax) is ax
    assert bk.compare(run, again=run)._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(bk.InputError, match="not a run"):
        bk.compare(run, "another")


@pytest.mark.parametrize("method", ["plot", "plot_timeline", "plot_latency", "plot_throughput"])
def test_a_mistyped_keyword_of_a_picture_names_the_nearest(method):
    """Pictures refuse keywords that nobody knows, as everything else here does."""
    classify(frame(1), bk.FunctionProvider(lambda prompt: "a", name="f"))
    run = bk.last_run()
    with pytest.raises(bk.UnknownKeyword, match="Did you mean 'title'"):
        getattr(run, method)(titel="x")
    with pytest.raises(bk.UnknownKeyword, match="Did you mean 'route'"):
        run.retry(rout=None)
