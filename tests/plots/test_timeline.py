"""The timeline: its bars, its bands, its stretches."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from invented import PNG, attempts, requests_of
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import batchkit as bk
from batchkit.plots import timeline


def bars(ax, outcome):
    """Bars of one outcome as (left, right)."""
    (found,) = [c for c in ax.collections if isinstance(c, PolyCollection) and c.get_label() == outcome]
    corners = [np.asarray(path.vertices) for path in found.get_paths()]
    return [(c[:, 0].min(), c[:, 0].max()) for c in corners]


def captions(ax):
    """The line above each band."""
    return [text.get_text() for text in ax.texts]


def test_every_attempt_is_a_bar_of_its_outcome():
    """Replies and failures are drawn apart, each attempt at its own time."""
    requests = requests_of(10, providers=("only",), failed=3)
    ax = timeline(requests).axes[0]
    assert bars(ax, "failed") == list(zip(requests["started"][:3], requests["ended"][:3], strict=True))
    assert bars(ax, "reply") == list(zip(requests["started"][3:], requests["ended"][3:], strict=True))


def test_waits_hang_below_the_line():
    """The wait before a retry is a bar from failure to retry, below those that hold a slot."""
    ax = timeline(attempts((0, "a", 0.0, 1.0, "server"), (0, "a", 3.0, 4.0, None))).axes[0]
    assert bars(ax, "waiting") == [(1.0, 3.0)]
    heights = {c.get_label(): np.concatenate([p.vertices for p in c.get_paths()])[:, 1] for c in ax.collections
               if c.get_label() in ("waiting", "reply")}  # fmt: skip
    assert heights["waiting"].max() < heights["reply"].min()


def test_one_band_per_provider_in_the_order_of_the_route():
    """Bands follow the categories, leave out who was asked nothing, and count requests, failures and slots."""
    requests = requests_of(16, providers=("zeta", "alpha"), failed=1)
    requests["provider"] = requests["provider"].cat.set_categories(["zeta", "idle", "alpha"])
    ax = timeline(requests).axes[0]
    assert captions(ax) == [
        "zeta   8 requests, 1 failed, at most 4 at once",
        "alpha   8 requests, 0 failed, at most 4 at once",
    ]
    heights = [text.xy[1] for text in ax.texts]
    assert heights[0] > heights[1]


def test_time_begins_with_the_run():
    """The time axis starts at 0, holds the last attempt, and says its unit."""
    ax = timeline(requests_of(40)).axes[0]
    left, right = ax.get_xlim()
    assert left == 0
    assert right >= requests_of(40)["ended"].max()
    assert ax.get_xlabel() == "seconds since the run began"


@pytest.mark.parametrize("count", [0, 1, 30, 2_500, 100_000])
def test_any_number_of_requests_can_be_drawn(count):
    """A run without requests, a small and a large one become a picture of sane size."""
    picture = timeline(requests_of(count), title="A run")
    width, height = picture.get_size_inches()
    assert (width, height <= 12) == (9.0, True)
    assert picture._repr_png_().startswith(PNG)


@pytest.mark.parametrize(("count", "is_binned"), [(2_000, False), (2_001, True)])
def test_many_requests_are_drawn_in_stretches_that_are_named(count, is_binned):
    """Beyond 2,000 attempts the picture shows means, and says so."""
    ax = timeline(requests_of(count)).axes[0]
    assert ("means of" in ax.get_xlabel()) is is_binned


def test_a_single_failure_among_many_replies_is_seen():
    """In stretches, every stretch with a failure has a mark, however few failed."""
    ax = timeline(requests_of(5_000, providers=("only",), failed=1)).axes[0]
    (marks,) = [c for c in ax.collections if isinstance(c, PolyCollection) and len(c.get_paths())]
    assert len(marks.get_paths()) == 1


def test_stretches_can_be_asked_for():
    """``bins`` draws even a small run in so many stretches."""
    assert "means of" in timeline(requests_of(30), bins=10).axes[0].get_xlabel()


def test_a_timeline_of_a_run_can_be_saved():
    """`Run.requests` is what timeline takes, and `savefig` writes other formats too."""
    rules = bk.FunctionProvider(lambda text: "a", name="rules")
    pd.DataFrame({"text": ["one", "two"]}).llm.classify("text", ["a", "b"], route=rules, progress=False)
    run = bk.last_run()
    assert run is not None
    file = io.BytesIO()
    timeline(run.requests).savefig(file, format="svg")
    assert b"<svg" in file.getvalue()


def test_bands_fit_the_axes_they_are_given():
    """In axes of one's own all bands are drawn, whatever the height."""
    ax = Figure(figsize=(6, 2)).subplots()
    assert timeline(requests_of(3_000), ax=ax) is ax
    low, high = ax.get_ylim()
    assert all(low <= text.xy[1] <= high for text in ax.texts)
