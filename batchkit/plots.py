"""Pictures of a run. The only module that draws, loaded when the first picture is wanted."""

from __future__ import annotations

import heapq
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from batchkit.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Picture", "assign_slots", "timeline"]

_REPLY, _FAILED = "#5ba3d0", "#c8420b"
"""Blue and orange of different lightness: told apart by any eyes, and on a grey print."""
_GRID, _INK, _QUIET = "#e6e6e6", "#333333", "#6b6b6b"

_WIDTH = 9.0
_SLOT, _PANEL_LEAST, _PANEL_MOST = 0.16, 0.5, 3.2
"""Inches: height of a slot while there are few of them, and of a panel at least and at most."""
_OUTLINED = 300
"""Up to so many attempts, a white gap tells the bars of one slot apart; beyond, it would hide them."""

_COLUMNS = ("provider", "started", "ended", "error")


class Picture(Figure):
    """A matplotlib figure that shows itself in a notebook, without pyplot and its global state.

    Save it with ``picture.savefig("run.png")``; PDF and SVG work as well.
    """

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file:
            self.savefig(file, format="png")
            return file.getvalue()


def timeline(requests: pd.DataFrame, *, title: str | None = None) -> Picture:
    """Draw when every attempt of a run began and ended.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`: one row per attempt, with ``provider``, ``started`` and ``ended`` (seconds
        since the run began) and ``error`` (missing where a reply came).
    title : str, optional
        Shown above the panels.

    Returns
    -------
    Picture
        A panel per provider that was asked, in the route's order. Every attempt is a bar in the
        lowest slot that was free when it began, so the height of a panel is the number of
        requests in flight. Rows that travelled in one call share its bar.

    Raises
    ------
    InputError
        A column is missing.

    Examples
    --------
    >>> import batchkit as bk
    >>> from batchkit.plots import timeline
    >>> timeline(bk.last_run().requests).savefig("timeline.png")                 # doctest: +SKIP
    """
    missing = [name for name in _COLUMNS if name not in requests.columns]
    if missing:
        raise InputError(f"timeline draws the frame Run.requests; this one has no column {missing[0]!r}.")
    panels = [(str(name), own) for name, own in requests.groupby("provider", observed=True, sort=False) if len(own)]
    if isinstance(requests["provider"].dtype, pd.CategoricalDtype):
        order = [str(name) for name in requests["provider"].cat.categories]
        panels.sort(key=lambda panel: order.index(panel[0]))
    slots = [assign_slots(own["started"].to_numpy(float), own["ended"].to_numpy(float)) for _, own in panels]
    heights = [_height(taken) for taken in slots] or [_PANEL_LEAST]
    # Around the panels: axis and legend below, a line of text above each, the title on top.
    picture = Picture(
        figsize=(_WIDTH, sum(heights) + 0.42 * len(heights) + 0.75 + (0.35 if title else 0)),
        dpi=144,
        layout="constrained",
        facecolor="white",
    )
    axes = picture.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (name, own), taken in zip(axes, panels, slots, strict=False):
        _draw_panel(ax, name, own, taken, outlined=len(requests) <= _OUTLINED)
    _finish(picture, list(axes), requests, title)
    return picture


def assign_slots(started: Sequence[float] | npt.NDArray[Any], ended: Sequence[float] | npt.NDArray[Any]) -> list[int]:
    """Give every interval the lowest slot that is free when it starts; equal intervals are one.

    Examples
    --------
    >>> assign_slots([0.0, 0.0, 1.0], [1.0, 3.0, 2.0])
    [0, 1, 0]
    """
    taken: dict[tuple[float, float], int] = {}
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for start, end in sorted(set(zip(map(float, started), map(float, ended), strict=True))):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        # Slots are opened one after the other, so those in use and those free are all there are.
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, slot))
        taken[start, end] = slot
    return [taken[float(start), float(end)] for start, end in zip(started, ended, strict=True)]


def _height(slots: Sequence[int]) -> float:
    return min(_PANEL_MOST, max(_PANEL_LEAST, _SLOT * (max(slots) + 1)))


def _draw_panel(ax: Axes, name: str, own: pd.DataFrame, slots: Sequence[int], *, outlined: bool) -> None:
    failed = own["error"].notna().to_numpy()
    bars = _bars(own["started"].to_numpy(float), own["ended"].to_numpy(float), np.asarray(slots))
    edge, width = ("white", 0.6) if outlined else ("face", 0.3)
    ax.add_collection(
        PolyCollection(list(bars[~failed]), facecolor=_REPLY, edgecolor=edge, linewidth=width), autolim=False
    )
    # Outlined in their own colour: a failure is seen however short it was.
    ax.add_collection(
        PolyCollection(list(bars[failed]), facecolor=_FAILED, edgecolor=_FAILED, linewidth=0.8), autolim=False
    )
    most = max(slots) + 1
    ax.set_ylim(most, 0)
    ax.set_title(
        f"{name}   {_counted(len(own), 'request')}, {int(failed.sum())} failed, at most {most} at once",
        loc="left", fontsize=9, color=_INK, parse_math=False,
    )  # fmt: skip


def _bars(started: npt.NDArray[Any], ended: npt.NDArray[Any], slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Corners of one rectangle per attempt, shape (attempts, 4, 2)."""
    top, bottom = slots + 0.08, slots + 0.92
    corners = [(started, top), (ended, top), (ended, bottom), (started, bottom)]
    return np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)


def _finish(picture: Picture, axes: list[Axes], requests: pd.DataFrame, title: str | None) -> None:
    """Scales, labels and legend that all panels share."""
    for ax in axes:
        ax.set_facecolor("white")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color(_GRID)
        ax.set_axisbelow(True)
        ax.grid(axis="x", color=_GRID, linewidth=0.8)
        ax.tick_params(length=0, labelsize=8, labelcolor=_QUIET)
        ax.set_ylabel("slots", fontsize=8, color=_QUIET)
        ax.set_yticks([])
    latest = float(requests["ended"].max()) if len(requests) else 1.0
    axes[-1].set_xlim(0, max(latest, 1e-6) * 1.01)
    axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=10))
    axes[-1].set_xlabel("seconds since the run began", fontsize=9, color=_INK)
    if not len(requests):
        axes[0].text(0.5, 0.5, "no requests", ha="center", va="center", transform=axes[0].transAxes, color=_QUIET)
    legend = [Patch(color=_REPLY, label="reply"), Patch(color=_FAILED, label="failed attempt")]
    picture.legend(handles=legend, loc="outside lower right", ncols=2, frameon=False, fontsize=8, labelcolor=_INK)
    if title:
        picture.suptitle(title, x=0.01, ha="left", fontsize=11, color=_INK, parse_math=False)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
