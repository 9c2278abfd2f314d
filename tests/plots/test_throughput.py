"""Rows per second and requests in flight, against the limits."""

from __future__ import annotations

import pytest
from invented import PNG, attempts, requests_of

from batchkit.plots import throughput
from batchkit.records import Limits


def ceilings(ax):
    """Heights of the dashed lines."""
    return [line.get_ydata()[0] for line in ax.lines]


def names(ax):
    """The legend's words."""
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_limits_are_drawn_beside_what_was_reached():
    """``rpm`` is a line of rows per second, ``max_concurrency`` one of requests in flight."""
    requests = attempts(*[(row, "a", row * 0.1, row * 0.1 + 0.5, None) for row in range(100)])
    rate, flight = throughput(requests, {"a": Limits(6, rpm=900)}).axes
    assert ceilings(rate) == [15.0]
    assert ceilings(flight) == [6.0]
    assert names(rate) == ["a (rpm 900)"]
    assert names(flight) == ["a (at most 6)"]


def test_the_stricter_limit_is_the_one_shown():
    """Of ``rpm`` and ``tpm``, at the run's tokens per request, the stricter is shown."""
    requests = attempts(*[(row, "a", row * 0.1, row * 0.1 + 0.5, None) for row in range(100)])
    rate, _ = throughput(requests, {"a": Limits(6, rpm=900, tpm=60_000)}).axes
    assert ceilings(rate) == [10.0]
    assert names(rate) == ["a (tpm 60,000)"]


def test_rows_of_one_call_share_what_it_may_do():
    """With several rows a request, ``rpm`` allows as many times the rows."""
    requests = attempts(*[(row, "a", row // 4 * 1.0, row // 4 + 0.5, None) for row in range(40)])
    rate, _ = throughput(requests, {"a": Limits(rpm=60)}).axes
    assert ceilings(rate) == [4.0]


def test_a_limit_far_above_is_named_and_flattens_nothing():
    """A limit more than three times the highest value stands in the legend only."""
    requests = attempts(*[(row, "a", row * 1.0, row + 0.5, None) for row in range(20)])
    rate, flight = throughput(requests, {"a": Limits(64, rpm=6_000)}).axes
    assert ceilings(rate) == ceilings(flight) == []
    assert names(rate) == ["a (rpm 6,000, far above)"]
    assert rate.get_ylim()[1] < 5


def test_without_limits_there_are_lines_alone():
    """Providers of unknown limits are drawn without any."""
    rate, flight = throughput(requests_of(40)).axes
    assert ceilings(rate) == ceilings(flight) == []
    assert names(flight) == ["fast", "strong"]


@pytest.mark.parametrize("count", [0, 1, 30, 100_000])
@pytest.mark.parametrize("providers", [("only",), tuple(f"provider {i}" for i in range(16))], ids=["one", "sixteen"])
def test_any_run_can_be_drawn(count, providers):
    """Any number of requests and of providers becomes a picture."""
    limits = {name: Limits(8, rpm=6_000, tpm=100_000) for name in providers}
    picture = throughput(requests_of(count, providers=providers), limits, title="A run")
    assert picture._repr_png_().startswith(PNG)
