"""A run on one page: when, how fast, how long, and how attempts ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from batchkit.plots._canvas import (
    COLOURS,
    INK,
    Picture,
    blank,
    caption,
    drawable,
    headline,
    style,
    title_of,
)
from batchkit.plots._data import outcome_data
from batchkit.plots._latency import latency
from batchkit.plots._throughput import draw_throughput
from batchkit.plots._timeline import timeline
from batchkit.records import Limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["dashboard", "outcomes"]

_WIDTH, _HEIGHT = 12.0, 8.6
_LETTERS = 78
_WORDS = {"reply": "replied"}
_NO_LIMITS: Mapping[str, Limits] = {}


def dashboard(
    requests: pd.DataFrame, limits: Mapping[str, Limits] = _NO_LIMITS, *, title: str | None = None
) -> Picture:
    """Draw a run on one page: its timeline, rows per second, requests in flight, latencies, and outcomes.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`: one row per attempt.
    limits : mapping of str to Limits, optional
        By provider: ``max_concurrency``, ``rpm`` and ``tpm``.
    title : str, optional
        Shown above the picture; a good place for how many rows are answered.

    Returns
    -------
    Picture
        See `timeline`, `throughput` and `latency`; the fourth part counts how attempts ended.

    Raises
    ------
    InputError
        A column is missing.

    Examples
    --------
    >>> import batchkit as bk
    >>> from batchkit.plots import dashboard
    >>> dashboard(bk.last_run().requests)                                         # doctest: +SKIP
    """
    picture = Picture.sized(_WIDTH, _HEIGHT)
    title_of(picture, title)
    axes = picture.subplot_mosaic(
        [["timeline", "timeline"], ["rate", "latency"], ["flight", "outcomes"]],
        height_ratios=[1.4, 1, 1], width_ratios=[1.15, 1],
    )  # fmt: skip
    timeline(requests, ax=axes["timeline"])
    draw_throughput(axes["rate"], axes["flight"], requests, limits)
    latency(requests, ax=axes["latency"])
    outcomes(requests, axes["outcomes"])
    picture.get_layout_engine().set(h_pad=0.1, w_pad=0.08)  # type: ignore[union-attr, call-arg]
    return picture


def outcomes(requests: pd.DataFrame, ax: Axes) -> None:
    """Draw how the attempts of each provider ended: a bar of shares, and the counts in words."""
    counts = outcome_data(requests)
    style(ax)
    headline(ax, "how attempts ended")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, max(len(counts), 1))
    ax.set_yticks([])
    if counts.empty:
        blank(ax)
        return
    ax.set_xlabel("share of the provider's attempts", fontsize=9, color=INK)
    ax.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    for place, (name, line) in enumerate(counts.iloc[::-1].iterrows()):
        total, left = line.sum(), 0.0
        for kind, count in line.items():
            share = count / total
            colour = COLOURS.get(str(kind), COLOURS["failed"])
            ax.barh(place + 0.3, share, 0.42, left, color=colour, edgecolor="white", linewidth=0.8)
            left += share
        said = drawable(name)
        caption(ax, place + 0.53, f"{said}   {_in_words(line[line > 0], _LETTERS - len(said))}")


def _in_words(counts: pd.Series[int], room: int) -> str:
    """The counts in so many letters, the last of them put together if they do not fit."""
    words = [f"{count:,} {_WORDS.get(str(kind), str(kind))}".replace("_", " ") for kind, count in counts.items()]
    for named in range(len(words), 0, -1):
        rest = int(counts.iloc[named:].sum())
        text = ", ".join([*words[:named], *([f"{rest:,} other"] if rest else [])])
        if len(text) <= room:
            break
    return text
