"""Progress as text: a line that is rewritten, or a line now and then."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from batchkit._logic.progress import LaneSnapshot, Snapshot
from batchkit.records import Failure, Scope
from batchkit.widgets.text import LogView, TextView


def lane(name="fast", stopped=None, adapted=()):
    return LaneSnapshot(name, 0, 0, 0, 0, 0, 0, None, stopped, adapted)


def run_at(rows, answered, errors=(), lanes=(), finished=None, **values):
    errors, lanes = dict(errors), lanes or (lane(),)
    snapshot = Snapshot(rows, answered, sum(errors.values()), errors, lanes, finished, **values)
    return SimpleNamespace(snapshot=snapshot, new_journal=None, blank=0, unrouted=0)


def over(rows, answered, errors=(), lanes=(), **values):
    return run_at(rows, answered, errors, lanes, "done", **values)


def drawn(capsys):
    """What stands in the line in the end, and all that was written."""
    out, err = capsys.readouterr()
    assert out == ""
    return err.replace("\r", "\n").rstrip("\n").rpartition("\n")[2], err


def test_the_line_says_how_many_of_how_many(capsys):
    """Rows done and all rows stand in the line, under the output's name, with how to stop."""
    view = TextView("label")
    view.show(run_at(30, 0).snapshot)
    view.show(run_at(30, 12).snapshot)
    line, _ = drawn(capsys)
    assert line.startswith("label: ")
    assert " 12/30 " in line
    assert "Ctrl-C keeps finished rows." in line
    view.close(over(30, 30))


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_line_goes_by_no_clock_that_is_set(capsys, monkeypatch, hours):
    """Time passed, time left and pace stay true when the computer's clock is set back or forward by hours."""
    set_by = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: time.time() + set_by[-1])
    view = TextView("label")
    for second in range(21):
        set_by.append(hours * 3600.0 if second >= 10 else 0.0)
        busy = LaneSnapshot("fast", 0, 0, 1000 + second, 0, 0, 0, None, None, reused=1000)
        view.show(run_at(1100, 1000 + second, lanes=(busy,), elapsed=float(second)).snapshot)
    line, _ = drawn(capsys)
    assert "[00:20<01:20,  1.00row/s" in line
    view.close(over(1100, 1100))


def test_errors_are_counted_by_kind(capsys):
    """Rows that failed count as done, and their kinds are named."""
    view = TextView("label")
    view.show(run_at(30, 12, {"timeout": 2, "refused": 1}).snapshot)
    line, _ = drawn(capsys)
    assert " 15/30 " in line
    assert "2 timeout, 1 refused" in line
    view.close(over(30, 30))


def test_a_stopped_provider_is_explained_at_the_end(capsys):
    """A provider that was stopped is marked in the line, and its reason has a line of its own."""
    lanes = (lane(), lane("strong", Failure("auth", "wrong key", Scope.PROVIDER)))
    view = TextView("label")
    view.show(run_at(30, 12, lanes=lanes).snapshot)
    assert "strong: stopped" in drawn(capsys)[0]
    view.close(over(30, 12, lanes=lanes))
    told = drawn(capsys)[1]
    assert "  strong: stopped (auth): wrong key\n" in told
    assert told.index("stopped (auth)") < told.index("fast: ")


@pytest.mark.parametrize("view", [TextView, LogView])
def test_the_summary_stands_once_at_the_end(capsys, view):
    """A run that was over before anything was drawn leaves its summary, once."""
    view("label").close(over(30, 30, elapsed=1.5))
    assert drawn(capsys)[1].count("label: 30 of 30 rows answered in 1.5 s") == 1


@pytest.mark.parametrize("view", [TextView, LogView])
def test_what_was_already_answered_is_said(capsys, view):
    """Rows whose answer was paid for before are counted apart."""
    view("label").close(over(5000, 5000, reused=1240))
    assert "1,240 of 5,000 already answered" in drawn(capsys)[1]


def test_a_new_journal_is_named_once(capsys):
    """The run that began a journal says where it is, and how to have none."""
    first = over(3, 3)
    first.new_journal = "/somewhere/journal.sqlite"
    TextView("label").close(first)
    TextView("label").close(over(3, 3))
    _, err = drawn(capsys)
    assert err.count("/somewhere/journal.sqlite") == 1
    assert "journal=False" in err


def test_rows_that_nobody_was_asked_about_are_counted(capsys):
    """Where all rows are blank, or the route sends some to nobody, the summary says so."""
    none = over(0, 0)
    none.blank, none.unrouted = 1_200, 1
    TextView("label").close(none)
    TextView("label").close(over(3, 3))
    _, err = drawn(capsys)
    assert "1,200 more rows are blank and not asked about." in err
    assert "1 more row is sent to nobody by the route." in err
    assert err.count("more row") == 2


def test_what_a_model_refused_is_said(capsys):
    """A provider that is asked in another manner now says which."""
    told = lane(adapted=("From now on this model is asked without your temperature=0.0.",))
    TextView("label").close(over(3, 3, lanes=(told,)))
    assert "fast: From now on this model is asked without your temperature=0.0." in drawn(capsys)[1]


def test_no_hundred_percent_before_the_end(capsys):
    """The last row of very many is not rounded away."""
    view = TextView("label")
    view.show(run_at(300_000, 299_999).snapshot)
    assert "100%" not in drawn(capsys)[1]
    view.close(over(300_000, 300_000))
    assert "300,000 of 300,000 rows answered" in drawn(capsys)[1]


def test_nothing_is_drawn_before_there_is_something(capsys):
    """A view that was only made and attached has written nothing."""
    for view in (TextView("label"), LogView("label")):
        view.attach(run_at(30, 0))
    assert drawn(capsys)[1] == ""


def test_no_thread_is_left_behind(capsys):
    """The line is drawn by the thread that waits and by no other."""
    before = set(threading.enumerate())
    view = TextView("label")
    view.show(run_at(30, 1).snapshot)
    assert set(threading.enumerate()) == before
    view.close(over(30, 30))
    assert set(threading.enumerate()) == before


def test_a_log_gets_a_line_now_and_then(capsys):
    """Where nobody watches, a line is written every half minute, whole and not rewritten."""
    seconds = iter(range(0, 1000, 1))
    view = LogView("label", clock=lambda: next(seconds))
    for done in range(100):
        view.show(run_at(100, done, elapsed=float(done)).snapshot)
    _, err = drawn(capsys)
    lines = err.splitlines()
    assert 2 <= len(lines) <= 4
    assert all(line.startswith("label: ") and "of 100 rows" in line for line in lines)
    assert "\r" not in err
