"""Progress as one line of text."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from batchkit._logic.progress import LaneSnapshot, Snapshot
from batchkit.records import Failure, Scope
from batchkit.widgets import TextView


def lane(name="fast", stopped=None):
    return LaneSnapshot(name, 0, 0, 0, 0, 0, 0, None, stopped)


def run_at(rows, answered, errors=(), lanes=(), reused=0, new_journal=None):
    errors, lanes = dict(errors), lanes or (lane(),)
    snapshot = Snapshot(rows, answered, sum(errors.values()), errors, lanes, None, reused)
    return SimpleNamespace(snapshot=snapshot, new_journal=new_journal)


def drawn(capsys):
    """What stands in the line in the end, and all that was written."""
    out, err = capsys.readouterr()
    assert out == ""
    return err.replace("\r", "\n").rstrip("\n").rpartition("\n")[2], err


def test_the_line_says_how_many_of_how_many(capsys):
    """Rows done and all rows stand in the line, under the output's name."""
    view = TextView("label")
    view.show(run_at(30, 0).snapshot)
    view.close(run_at(30, 12))
    line, _ = drawn(capsys)
    assert line.startswith("label: ")
    assert " 12/30 " in line


def test_errors_are_counted_by_kind(capsys):
    """Rows that failed count as done, and their kinds are named."""
    TextView("label").close(run_at(30, 12, {"timeout": 2, "refused": 1}))
    line, _ = drawn(capsys)
    assert " 15/30 " in line
    assert "2 timeout, 1 refused" in line


def test_a_stopped_provider_is_explained_at_the_end(capsys):
    """A provider that was stopped is marked in the line, and its reason has a line of its own."""
    stopped = lane("strong", Failure("auth", "wrong key", Scope.PROVIDER))
    TextView("label").close(run_at(30, 12, lanes=(lane(), stopped)))
    line, err = drawn(capsys)
    assert "strong: stopped" in line
    assert "strong was stopped (auth): wrong key\n" in err


def test_what_was_already_answered_is_said(capsys):
    """Rows whose answer was paid for before are counted apart."""
    TextView("label").close(run_at(5000, 5000, reused=1240))
    _, err = drawn(capsys)
    assert "1,240 of 5,000 already answered" in err


def test_a_new_journal_is_named_once(capsys):
    """The run that began a journal says where it is, and how to have none."""
    TextView("label").close(run_at(3, 3, new_journal="/somewhere/journal.sqlite"))
    TextView("label").close(run_at(3, 3))
    _, err = drawn(capsys)
    assert err.count("/somewhere/journal.sqlite") == 1
    assert "journal=False" in err


def test_what_a_model_refused_is_said(capsys):
    """That a model is asked in another manner has a line of its own."""
    told = replace(lane(), adapted=("From now on this model is asked without your temperature=0.0.",))
    TextView("label").close(run_at(3, 3, lanes=(told,)))
    assert "fast: From now on this model is asked without your temperature=0.0." in drawn(capsys)[1]


def test_no_hundred_percent_before_the_end(capsys):
    """The last row of very many is not rounded away."""
    view = TextView("label")
    view.show(run_at(300_000, 299_999).snapshot)
    assert "100%" not in drawn(capsys)[1]
    view.close(run_at(300_000, 300_000))
    assert "300000/300000" in drawn(capsys)[0]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_run_of_hardly_anything(capsys, rows):
    """A run without rows ends its line like any other."""
    TextView("label").close(run_at(rows, rows))
    assert f"{rows}/{rows}" in drawn(capsys)[0]


def test_nothing_is_drawn_before_there_is_something(capsys):
    """A view that was only made has written nothing."""
    TextView("label")
    assert drawn(capsys)[1] == ""


def test_no_thread_is_left_behind(capsys):
    """The line is drawn by the thread that waits and by no other."""
    before = set(threading.enumerate())
    view = TextView("label")
    view.show(run_at(30, 1).snapshot)
    assert set(threading.enumerate()) == before
    view.close(run_at(30, 30))
    assert set(threading.enumerate()) == before
