"""Runs side by side."""

from __future__ import annotations

import pandas as pd
import pytest
from invented import PNG, run_of
from matplotlib.figure import Figure

import batchkit as bk
from batchkit.plots import compare


def titles(picture):
    """What is measured."""
    return [ax.get_title(loc="left") for ax in picture.axes]


def test_every_number_of_the_table_stands_at_its_bar():
    """Each run has a bar and its number for seconds, rows per second, latencies and failures."""
    picture = compare({"serial": run_of(40, 20.0, failed=2), "ours": run_of(40, 2.0)}, title="40 rows")
    assert titles(picture) == ["seconds", "rows per second", "latency in s: p50, p90, p99", "rows failed"]
    seconds, rate, latencies, failed = picture.axes
    assert [label.get_text() for label in seconds.get_yticklabels()] == ["serial", "ours"]
    assert [text.get_text() for text in seconds.texts] == ["20", "2"]
    assert [text.get_text() for text in rate.texts] == ["1.9", "20"]
    assert len(latencies.texts) == 6
    assert [text.get_text() for text in failed.texts] == ["2", "0"]


def test_bars_are_as_long_as_their_numbers():
    """Bars begin at 0, so that twice as long is twice as much."""
    seconds = compare({"serial": run_of(40, 20.0), "ours": run_of(40, 2.0)}).axes[0]
    assert [bar.get_width() for bar in seconds.patches] == [20.0, 2.0]
    assert seconds.get_xlim()[0] == 0


def test_answers_that_were_there_before_are_shown_as_such():
    """Where a run found earlier answers, a column says how many."""
    picture = compare({"first": run_of(40, 20.0), "again": run_of(40, 0.5, reused=40)})
    assert titles(picture)[-1] == "rows answered before"
    assert [text.get_text() for text in picture.axes[-1].texts] == ["0", "40"]


@pytest.mark.parametrize("runs", [1, 2, 12])
def test_any_number_of_runs_can_be_compared(runs):
    """One run and many become a picture, also where nothing was asked."""
    picture = compare({f"run {i}": run_of(i, 1.0 * i) for i in range(runs)})
    assert picture._repr_png_().startswith(PNG)


def test_real_runs_are_what_it_takes():
    """`bk.last_run()` can be compared as it is, in axes of one's own, too."""
    rules = bk.FunctionProvider(lambda text: "a", name="rules")
    pd.DataFrame({"text": ["one", "two"]}).llm.classify("text", ["a", "b"], route=rules, progress=False)
    run = bk.last_run()
    assert run is not None
    ax = Figure().subplots()
    assert compare({"only": run}, ax=ax, title="Mine") is ax
    assert len(ax.child_axes) == 4
