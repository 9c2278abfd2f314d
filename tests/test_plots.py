"""The timeline: its slots, its bars, its panels, and how it is shown and saved."""

from __future__ import annotations

import io
import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

import batchkit as bk
from batchkit.plots import Picture, assign_slots, timeline

PNG = b"\x89PNG\r\n\x1a\n"

intervals = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda pair: (float(pair[0]), float(sum(pair)))), max_size=60
)


def requests_of(count: int, *, providers: tuple[str, ...] = ("fast", "strong"), failed: int = 0) -> pd.DataFrame:
    """Invent a run of ``count`` attempts, taking turns, the first ``failed`` of them without a reply."""
    started = np.arange(count) // 8 * 0.1
    errors = ["server"] * failed + [None] * (count - failed)
    return pd.DataFrame(
        {
            "row": range(count),
            "provider": pd.Categorical([providers[i % len(providers)] for i in range(count)], providers),
            "started": started,
            "ended": started + 0.05 + np.arange(count) % 8 * 0.005,
            "error": pd.Categorical(errors, ["server"]),
        }
    )


def bars_by_colour(picture: Picture, panel: int = 0) -> dict[str, list[tuple[float, float]]]:
    """Bars of one panel as (left, right) by their colour."""
    found = {}
    for collection in picture.axes[panel].collections:
        assert isinstance(collection, PolyCollection)
        corners = [np.asarray(path.vertices) for path in collection.get_paths()]
        colour: Any = collection.get_facecolor()
        found[to_hex(colour[0])] = [(c[:, 0].min(), c[:, 0].max()) for c in corners]
    return found


@given(intervals)
def test_no_two_attempts_share_a_slot_at_a_time(times: list[tuple[float, float]]) -> None:
    """Attempts in one slot do not overlap, unless they are one call."""
    slots = assign_slots([start for start, _ in times], [end for _, end in times])
    taken = sorted({(slot, *interval) for slot, interval in zip(slots, times, strict=True)})
    for (slot, _, end), (other, start, _) in itertools.pairwise(taken):
        assert slot != other or end <= start


@given(intervals)
def test_slots_are_as_few_as_were_in_flight(times: list[tuple[float, float]]) -> None:
    """The number of slots is the most attempts that were ever in flight at once."""
    calls = set(times)
    slots = assign_slots([start for start, _ in times], [end for _, end in times])
    in_flight = [sum(start <= moment < end for start, end in calls) for moment, _ in calls]
    assert len(set(slots)) == max(in_flight, default=0)
    assert set(slots) == set(range(len(set(slots))))


def test_rows_of_one_call_share_a_slot() -> None:
    """Attempts that began and ended together travelled in one call and take one slot."""
    assert assign_slots([0.0, 0.0, 0.5], [1.0, 1.0, 2.0]) == [0, 0, 1]


def test_every_attempt_is_a_bar_of_its_outcome() -> None:
    """Replies and failures are drawn in two colours, each attempt at its own time."""
    requests = requests_of(10, providers=("only",), failed=3)
    replies, failures = bars_by_colour(timeline(requests)).values()
    assert failures == list(zip(requests["started"][:3], requests["ended"][:3], strict=True))
    assert replies == list(zip(requests["started"][3:], requests["ended"][3:], strict=True))


def test_one_panel_per_provider_in_the_order_of_the_route() -> None:
    """Panels follow the categories, leave out who was asked nothing, and count requests, failures and slots."""
    requests = requests_of(16, providers=("zeta", "alpha"), failed=1)
    requests["provider"] = requests["provider"].cat.set_categories(["zeta", "idle", "alpha"])
    titles = [ax.get_title(loc="left") for ax in timeline(requests).axes]
    assert titles == [
        "zeta   8 requests, 1 failed, at most 4 at once",
        "alpha   8 requests, 0 failed, at most 4 at once",
    ]


def test_time_begins_with_the_run() -> None:
    """The time axis starts at 0, holds the last attempt, and says its unit."""
    axes = timeline(requests_of(40)).axes[-1]
    left, right = axes.get_xlim()
    assert left == 0
    assert right >= requests_of(40)["ended"].max()
    assert axes.get_xlabel() == "seconds since the run began"


@pytest.mark.parametrize("count", [0, 1, 30, 3_000])
def test_any_number_of_requests_can_be_drawn(count: int) -> None:
    """A run without requests, a small and a large one become a picture of sane size."""
    picture = timeline(requests_of(count), title="A run")
    width, height = picture.get_size_inches()
    assert (width, height <= 12) == (9.0, True)
    assert picture._repr_png_().startswith(PNG)


def test_names_are_text_and_not_formulas() -> None:
    """A dollar sign or a backslash in a name or title is drawn as it is."""
    picture = timeline(requests_of(8, providers=("$bad_{", r"\frac")), title=r"$\nope")
    assert picture._repr_png_().startswith(PNG)


def test_a_timeline_of_a_run_can_be_saved() -> None:
    """`Run.requests` is what timeline takes, and `savefig` writes other formats too."""
    rules = bk.FunctionProvider(lambda text: "a", name="rules")
    pd.DataFrame({"text": ["one", "two"]}).llm.classify("text", ["a", "b"], route=rules, progress=False)
    run = bk.last_run()
    assert run is not None
    file = io.BytesIO()
    timeline(run.requests).savefig(file, format="svg")
    assert b"<svg" in file.getvalue()


def test_another_frame_is_refused() -> None:
    """A frame that is not `Run.requests` is refused, naming the column it lacks."""
    with pytest.raises(bk.InputError, match=r"Run\.requests.*'started'"):
        timeline(pd.DataFrame({"provider": ["a"]}))
