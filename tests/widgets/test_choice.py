"""Which view is chosen where, and how often it is drawn."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchkit as bk
from batchkit.widgets import choose, kernel
from batchkit.widgets.choice import Paced
from batchkit.widgets.html import HtmlView
from batchkit.widgets.text import LogView, TextView
from batchkit.widgets.widget import WidgetView

RUN = SimpleNamespace(snapshot=None)


@pytest.fixture
def seen(monkeypatch):
    """The views that appear, which draw nothing."""
    views = []
    for view in (HtmlView, LogView, TextView, WidgetView):
        monkeypatch.setattr(view, "attach", lambda self, run: views.append(type(self)))
    return views


def in_notebook(monkeypatch, widgets=True, **attributes):
    shell = SimpleNamespace(kernel=SimpleNamespace(**attributes))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(kernel, "has_widgets", lambda: widgets)


@pytest.mark.parametrize(
    ("progress", "widgets", "view"),
    [
        (None, True, WidgetView),
        (True, True, WidgetView),
        (None, False, HtmlView),
        ("widget", True, WidgetView),
        ("html", True, HtmlView),
        ("text", True, HtmlView),
    ],
)
@pytest.mark.parametrize("blocking", [True, False])
def test_in_a_notebook(monkeypatch, seen, progress, widgets, blocking, view):
    """A notebook shows widgets where it has them, else HTML, or what was asked for."""
    in_notebook(monkeypatch, widgets)
    choose(progress, blocking=blocking)("label").attach(RUN)
    assert seen == [view]


@pytest.mark.parametrize("progress", [None, True, "widget", "html", "text"])
@pytest.mark.parametrize("shell", ["no IPython", "a script that imported IPython", "IPython's terminal"])
@pytest.mark.parametrize(("tty", "view"), [(True, TextView), (False, LogView)])
def test_outside_a_notebook(monkeypatch, seen, progress, shell, tty, view):
    """Outside a notebook everything is text, rewritten on a terminal and not in a log."""
    shells = {
        "no IPython": None,
        "a script that imported IPython": SimpleNamespace(get_ipython=lambda: None),
        "IPython's terminal": SimpleNamespace(get_ipython=object),
    }
    monkeypatch.setitem(sys.modules, "IPython", shells[shell])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: tty, raising=False)
    choose(progress)("label").attach(RUN)
    assert seen == [view]


def test_no_progress_is_no_view():
    """Whoever wants no progress gets no view."""
    assert choose(False) is None


class Recorder:
    def __init__(self):
        self.shown, self.closed = [], 0

    def attach(self, run):
        pass

    def show(self, snapshot):
        self.shown.append(snapshot)

    def close(self, run):
        self.closed += 1


@given(st.lists(st.floats(0.001, 0.5), max_size=200))
def test_five_times_a_second_at_most_and_the_end_always(waits):
    """However often a run ticks, a view is drawn five times a second at most, and its end always."""
    now = [100.0]
    recorder = Recorder()
    view = Paced(lambda: recorder, clock=lambda: now[0])
    view.attach(RUN)
    for wait in waits:
        now[0] += wait
        view.show(now[0])
    view.close(RUN)
    assert len(recorder.shown) <= (now[0] - 100) / 0.2 + 0.2
    assert recorder.closed == 1


def test_a_steady_tick_is_drawn_each_time():
    """Ticks of a fifth of a second are all drawn, though some come a little early."""
    now = [100.0]
    recorder = Recorder()
    view = Paced(lambda: recorder, clock=lambda: now[0])
    view.attach(RUN)
    for tick in range(50):
        now[0] = 100.2 + tick * 0.2 + (-1) ** tick * 0.005
        view.show(tick)
    assert recorder.shown == list(range(50))


def test_a_view_that_could_not_appear_is_not_drawn():
    """What fails when a view appears is raised there, and nothing is drawn afterwards."""

    def fail():
        raise RuntimeError("no front end")

    view = Paced(fail)
    with pytest.raises(RuntimeError, match="no front end"):
        view.attach(RUN)
    view.show(None)
    view.close(RUN)


@pytest.mark.parametrize(
    ("attributes", "works"),
    [
        ({}, False),
        ({"shell_channel_thread": None}, False),
        ({"shell_channel_thread": SimpleNamespace(manager=SimpleNamespace(list_subshell=list))}, False),
        ({"shell_channel_thread": SimpleNamespace(manager=SimpleNamespace(list_subshell=lambda: ["x"]))}, True),
    ],
)
def test_a_click_arrives_over_a_subshell_only(monkeypatch, attributes, works):
    """Without subshells, or before the front end opened one, no click arrives while a cell runs."""
    in_notebook(monkeypatch, **attributes)
    assert kernel.takes_clicks() is works


@pytest.mark.parametrize("comm", [None, SimpleNamespace(), SimpleNamespace(_reply_subshell_id=None)])
def test_messages_are_unpinned_where_they_are_pinned(comm):
    """The pin of ipykernel 7.4 is taken off, and its lack does no harm."""
    kernel.unpin(SimpleNamespace(comm=comm))
    assert not hasattr(comm, "_reply_subshell_id")


@pytest.mark.parametrize("step", ["attach", "show", "close"])
def test_a_view_that_fails_harms_no_run(monkeypatch, step):
    """Whatever a view fails at, the rows are answered and one warning says so."""

    def fail(*_):
        raise RuntimeError("no front end")

    def answer(text):
        release.wait(0.3)  # until it was drawn at least once
        return "a"

    release = threading.Event()
    monkeypatch.setattr(LogView, step, fail)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    df = pd.DataFrame({"text": ["x", "y"]})
    route = bk.FunctionProvider(answer, name="calm")
    with pytest.warns(bk.BatchkitWarning, match="no front end") as warned:
        out = df.llm.classify("text", ["a", "b"], route=route, progress=True)
    assert len(warned) == 1
    assert out["label"].tolist() == ["a", "a"]
