"""A run on one page."""

from __future__ import annotations

import pytest
from invented import PNG, attempts, requests_of

from batchkit.plots import dashboard
from batchkit.records import Limits


@pytest.mark.parametrize("count", [0, 1, 30, 100_000])
def test_any_run_fits_on_a_page(count):
    """A run without requests, a small and a large one become one picture of five axes."""
    picture = dashboard(requests_of(count, failed=count // 10), {"fast": Limits(8, rpm=600)}, title="A run")
    assert len(picture.axes) == 5
    assert picture._repr_png_().startswith(PNG)


def test_outcomes_are_counted_in_words():
    """Beside the bars stands how many attempts ended how; what is rare is put together."""
    kinds = ["server", "timeout", "connection", "rate_limited", "truncated", "function"]
    lines = [(i, "a", 0.0, 1.0, kind) for i, kind in enumerate(kinds)]
    lines += [(i, "a", 0.0, 1.0, None) for i in range(50, 1_100)] + [(99, "a", 0.0, 1.0, "server")]
    (line,) = [text.get_text() for text in dashboard(attempts(*lines)).axes[4].texts]
    assert line.startswith("a   1,050 replied, 2 server, ")
    assert line.endswith(" other")
    assert sum(int(word) for word in line.replace(",", "").split() if word.isdigit()) == 1_057


def test_shares_fill_the_bar():
    """The parts of a provider's bar come to the whole."""
    bars = dashboard(requests_of(40, providers=("only",), failed=7)).axes[4].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(1)
