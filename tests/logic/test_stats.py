"""Timings into numbers people compare."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.stats import most_at_once, quantile


@pytest.mark.parametrize(("q", "value"), [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (1.0, 4.0)])
def test_quantiles_are_linear_between_neighbours(q, value):
    """A quantile between two timings lies between them in proportion."""
    assert quantile(np.array([4.0, 1.0, 3.0, 2.0]), q) == value


def test_of_nothing_there_is_no_quantile():
    """Where nothing was timed the quantile is NaN, without a warning."""
    assert math.isnan(quantile(np.array([]), 0.5))


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_within_its_timings(seconds, q):
    """No quantile is outside the smallest and largest timing, and it is a plain float."""
    found = quantile(np.array(seconds), q)
    assert type(found) is float
    assert min(seconds) <= found <= max(seconds)


@pytest.mark.parametrize(
    ("started", "ended", "most"),
    [([], [], 0), ([0.0], [1.0], 1), ([0.0, 1.0], [1.0, 2.0], 1), ([0.0, 0.5, 0.9], [1.0, 2.0, 0.95], 3)],
)
def test_the_most_at_once(started, ended, most):
    """Intervals over one moment are counted, and one that ends where another begins makes room for it."""
    assert most_at_once(np.array(started), np.array(ended)) == most
