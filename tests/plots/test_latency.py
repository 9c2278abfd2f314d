"""Latencies as histograms."""

from __future__ import annotations

import numpy as np
import pytest
from invented import PNG, attempts, requests_of
from matplotlib.collections import LineCollection

from batchkit.plots import latency, latency_data


def test_quantiles_are_drawn_where_they_are():
    """A line stands at p50, p90 and p99 of each provider, and its caption has the numbers."""
    requests = requests_of(40, providers=("only",))
    ax = latency(requests).axes[0]
    lines = [c.get_segments()[0][0][0] for c in ax.collections if isinstance(c, LineCollection)][-3:]
    assert lines == pytest.approx(latency_data(requests).loc["only", ["p50", "p90", "p99"]].tolist())
    assert ax.texts[0].get_text().startswith("only   40 replies: p50 0.0675")


@pytest.mark.parametrize(("count", "is_shown"), [(30, True), (300, False)])
def test_few_replies_are_shown_one_by_one(count, is_shown):
    """Up to 200 replies of a provider are ticks as well, more are a histogram only."""
    ax = latency(requests_of(count, providers=("only",))).axes[0]
    most = max(len(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection))
    assert (most == count) is is_shown


def test_every_reply_is_in_a_bin():
    """The histogram's bins reach from below the shortest reply to above the longest."""
    requests = attempts(*[(row, "a", 0.0, 0.001 * 2.0**row, None) for row in range(12)], (12, "b", 0.0, 0.002, None))
    ax = latency(requests).axes[0]
    left, right = ax.get_xlim()
    assert left <= 0.001
    assert right >= 0.001 * 2**11


@pytest.mark.parametrize(("longest", "scale"), [(2.0, "linear"), (60.0, "log")])
def test_a_wide_range_is_logarithmic_and_says_so(longest, scale):
    """If the longest reply took over 20 times p50 the scale is logarithmic, and the label says it."""
    ax = latency(attempts(*[(i, "a", 0.0, 1.0, None) for i in range(3)], (3, "a", 0.0, longest, None))).axes[0]
    assert ax.get_xscale() == scale
    assert ("logarithmic" in ax.get_xlabel()) is (scale == "log")


def test_failures_are_left_out_and_said_to_be():
    """The label says that failed attempts are not drawn, where there are any."""
    assert "failed attempts are not drawn" in latency(requests_of(30, failed=2)).axes[0].get_xlabel()
    assert "failed" not in latency(requests_of(30)).axes[0].get_xlabel()


@pytest.mark.parametrize(
    "requests",
    [
        requests_of(0),
        requests_of(1),
        requests_of(8, failed=8),
        attempts((0, "a", 1.0, 1.0, None)),
        requests_of(100_000),
    ],
    ids=["none", "one", "all failed", "no time", "many"],
)
def test_any_run_can_be_drawn(requests):
    """Runs without requests or replies, with replies in no time, and large ones become a picture."""
    assert np.all(latency(requests, title="A run").get_size_inches() < 12)
    assert latency(requests)._repr_png_().startswith(PNG)
