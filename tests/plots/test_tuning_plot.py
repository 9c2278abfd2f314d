"""Settings side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from invented import PNG

import batchkit as bk
from batchkit.plots import tuning


def table_of(*lines, **columns):
    """A frame as `Tuning.table` has it, from (concurrency, rows per second, p50, p99)."""
    frame = pd.DataFrame(lines, columns=["concurrency", "rows_per_second", "p50", "p99"])
    frame["setting"] = [f"{count} at once" for count in frame["concurrency"]]
    usual = {"batch_size": pd.array([pd.NA] * len(frame), "Int64"), "batch_time": np.nan}
    return frame.assign(**{**usual, "failures": 0, "rate_limited": 0, "overloaded": 0, **columns})


def names(ax):
    """The legend's words."""
    return [text.get_text() for text in ax.get_legend().get_texts()]


PLAIN = table_of((1, 5.0, 0.2, 0.3), (5, 24.0, 0.2, 0.3), (20, 30.0, 0.6, 0.9))


def test_paces_and_latencies_stand_over_the_concurrency():
    """Rows per second and p50 and p99 are drawn at the concurrency they were measured at, and paces are named."""
    rate, latency = tuning(PLAIN, "5 at once").axes
    _, pace, _ = rate.lines
    assert pace.get_xdata().tolist() == [1, 5, 20]
    assert pace.get_ydata().tolist() == [5.0, 24.0, 30.0]
    assert [line.get_ydata().tolist() for line in latency.lines] == [[0.2, 0.2, 0.6], [0.3, 0.3, 0.9]]
    assert [text.get_text() for text in rate.texts] == ["5", "24", "30"]
    assert names(rate) == ["in proportion", "recommended"]
    assert names(latency) == ["p50", "p99"]


def test_settings_in_any_order_make_one_line():
    """The line goes from few in flight to many, in whatever order they were measured."""
    rate = tuning(PLAIN.iloc[[2, 0, 1]]).axes[0]
    assert rate.lines[1].get_xdata().tolist() == [1, 5, 20]
    assert names(rate) == ["in proportion"]


def test_troubles_are_crossed_and_counted():
    """A setting with failures or refusals has a cross and says how many."""
    rate = tuning(PLAIN.assign(rate_limited=[0, 0, 14], failures=[0, 0, 2])).axes[0]
    assert rate.texts[-1].get_text() == "14 rate-limited\n2 failed\n30"
    assert names(rate) == ["in proportion", "failures or refusals"]


def test_batches_have_panels_of_their_own():
    """Collected settings stand beside the others, on the same scale, under size and time."""
    batches = table_of((60, 90.0, 0.3, 0.4), (60, 80.0, 0.5, 0.6), batch_size=pd.array([16, 64], "Int64"))
    table = pd.concat([PLAIN, batches.assign(batch_time=[0.1, 0.5], setting=["small", "large"])])
    picture = tuning(table, "small")
    rate, batched, _, _ = picture.axes
    assert rate.get_ylim() == batched.get_ylim()
    assert [label.get_text() for label in batched.get_xticklabels()] == ["16\n0.1 s", "64\n0.5 s"]
    assert names(batched) == ["recommended"]
    assert len(tuning(batches.assign(batch_time=0.1)).axes) == 2
    assert picture._repr_png_().startswith(PNG)


@pytest.mark.parametrize(
    "table", [table_of((1, 5.0, 0.2, 0.3)), table_of((1, 0.0, np.nan, np.nan), (5, 0.0, np.nan, np.nan))]
)
def test_any_table_becomes_a_picture(table):
    """One setting, and settings without a reply, can be drawn, too."""
    assert tuning(table, title="$x$ 数据")._repr_png_().startswith(PNG)


def test_what_cannot_be_drawn_is_refused():
    """A frame that is no such table, and one without a setting, are errors."""
    with pytest.raises(bk.InputError, match="no column 'p50'"):
        tuning(PLAIN.drop(columns="p50"))
    with pytest.raises(bk.InputError, match="no setting was measured"):
        tuning(PLAIN.iloc[:0])
