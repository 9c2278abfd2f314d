"""Every attempt as a bar in its provider's slot, or for many of them how many were in flight, by outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from batchkit.plots._canvas import (
    COLOURS,
    INK,
    QUIET,
    Picture,
    blank,
    caption,
    counted,
    drawable,
    headline,
    legend,
    number,
    show_numbers,
    style,
    title_of,
)
from batchkit.plots._data import OUTCOMES, providers_of, throughput_data, timeline_data

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BARS_AT_MOST", "timeline"]

BARS_AT_MOST = 2_000
"""Beyond so many attempts a bar would be thinner than a pixel."""
_BINS = 240
_OUTLINED = 300
"""Up to so many attempts, a white gap tells the bars of one slot apart; beyond, it would hide them."""

_WIDTH = 9.0
_SLOT, _BODY_LEAST, _BODY_MOST = 0.16, 0.3, 3.0
_WAIT, _WAITS_MOST = 0.06, 0.6
_TITLE, _GAP, _RUG = 0.24, 0.12, 0.07
"""Inches. A band is its title, its body, and the waits below."""

_WORDS = {
    "reply": "reply",
    "unusable": "unusable reply",
    "rate_limited": "rate limited",
    "failed": "failed",
    "cancelled": "cancelled",
    "waiting": "waiting to be asked again",
}


@dataclass(frozen=True, slots=True)
class _Band:
    """One provider's part of the picture, in inches from below: waits hang from ``base``, the body stands on it."""

    name: str
    own: pd.DataFrame
    slots: int
    waits: int
    base: float
    body: float
    below: float


@overload
def timeline(requests: pd.DataFrame, *, title: str | None = None, bins: int | None = None) -> Picture: ...
@overload
def timeline(requests: pd.DataFrame, *, title: str | None = None, bins: int | None = None, ax: Axes) -> Axes: ...
def timeline(
    requests: pd.DataFrame, *, title: str | None = None, bins: int | None = None, ax: Axes | None = None
) -> Picture | Axes:
    """Draw when every attempt of a run began and ended, and how long rows waited to be asked again.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`: one row per attempt.
    title : str, optional
        Shown above the picture.
    bins : int, optional
        Draw so many stretches of time instead of single bars. Default: bars for up to 2,000
        attempts, 240 stretches for more.
    ax : Axes, optional
        Where to draw. Default: a new `Picture`.

    Returns
    -------
    Picture or Axes
        A band per provider that was asked, in the route's order. Every attempt is a bar in the
        lowest slot that was free when it began, so the height of a band is the number of requests
        in flight; rows that travelled in one call share its bar. Grey bars hanging below are rows
        that wait to be asked again, and hold no slot. In stretches, coloured areas are the mean
        number in flight, the line is the most at any moment, and a mark on top shows every stretch
        in which an attempt failed, the stronger the larger the share.

    Raises
    ------
    InputError
        A column is missing, or ``bins`` is below 1.

    Examples
    --------
    >>> import batchkit as bk
    >>> from batchkit.plots import timeline
    >>> timeline(bk.last_run().requests).savefig("timeline.png")                 # doctest: +SKIP
    """
    data = timeline_data(requests)
    if bins is None and len(requests) > BARS_AT_MOST:
        bins = _BINS
    binned = None if bins is None else throughput_data(requests, bins=bins)
    room = None if ax is None else ax.bbox.height / ax.figure.dpi
    bands = _bands(data, room)
    top = bands[0].base + bands[0].body + _TITLE if bands else _BODY_LEAST + _TITLE
    picture = None
    if ax is None:
        picture = Picture.sized(_WIDTH, top + 0.85 + (0.35 if title else 0))
        ax = picture.subplots()
        title_of(picture, title)
    elif title:
        headline(ax, drawable(title), lines=1)
    _draw(ax, bands, binned, top)
    latest = float(data["ended"].max()) if len(data) else 1.0
    step = (
        ""
        if binned is None or binned.empty
        else f"; means of {number(binned['end'].iloc[0])} s, the line is the most, marks are failures"
    )
    show_numbers(ax, latest, label=f"seconds since the run began{step}")
    return picture if picture is not None else ax


def _bands(data: pd.DataFrame, room: float | None) -> list[_Band]:
    """From the lowest upwards they are placed; the first provider's comes first, and on top."""
    parts = []
    for name in providers_of(data):
        own = data[data["provider"] == name]
        is_wait = (own["outcome"] == "waiting").to_numpy()
        slots = int(own.loc[~is_wait, "slot"].max()) + 1 if not is_wait.all() else 0
        waits = int(own.loc[is_wait, "slot"].max()) + 1 if is_wait.any() else 0
        body = float(np.clip(_SLOT * slots, _BODY_LEAST, _BODY_MOST))
        parts.append((name, own, slots, waits, body, min(_WAIT * waits, _WAITS_MOST)))
    scale = 1.0
    if room is not None and parts:
        wanted = sum(body + below for *_, body, below in parts)
        scale = max(room - (_TITLE + _GAP) * len(parts), room / 4) / wanted
    bands: list[_Band] = []
    floor = 0.0
    for name, own, slots, waits, body, below in reversed(parts):
        bands.insert(0, _Band(name, own, slots, waits, floor + below * scale, body * scale, below * scale))
        floor += (body + below) * scale + _TITLE + _GAP
    return bands


def _draw(ax: Axes, bands: Sequence[_Band], binned: pd.DataFrame | None, top: float) -> None:
    style(ax)
    ax.set_ylim(-0.04, top)
    if not bands:
        blank(ax)
        return
    few = sum(len(band.own) for band in bands) <= _OUTLINED
    ticks: list[tuple[float, int]] = []
    for band in bands:
        unit = (band.body - (0 if binned is None else _RUG)) / max(band.slots, 1)
        if binned is None:
            _draw_bars(ax, band, unit, outlined=few)
        else:
            _draw_areas(ax, band, unit, binned[binned["provider"] == band.name])
        ax.axhline(band.base, color=QUIET, linewidth=0.6)
        caption(ax, band.base + band.body, _caption(band))
        ticks += [(band.base, 0), (band.base + band.slots * unit, band.slots)]
    ax.set_yticks([at for at, _ in ticks], [f"{count}" for _, count in ticks])
    ax.set_ylabel("in flight", fontsize=8, color=QUIET)
    seen = {outcome for band in bands for outcome in band.own["outcome"].unique()}
    handles: list[Any] = [Patch(color=COLOURS[name], label=_WORDS[name]) for name in _WORDS if name in seen]
    legend(ax, handles)


def _caption(band: _Band) -> str:
    attempts = band.own[band.own["outcome"] != "waiting"]
    failed = int(attempts["outcome"].isin(["rate_limited", "failed", "cancelled"]).sum())
    requests = counted(len(attempts), "request")
    waiting = f" and {band.waits:,} waiting" if band.waits else ""
    return f"{drawable(band.name)}   {requests}, {failed:,} failed, at most {band.slots:,} at once{waiting}"


def _draw_bars(ax: Axes, band: _Band, unit: float, *, outlined: bool) -> None:
    for outcome in COLOURS:
        own = band.own[band.own["outcome"] == outcome]
        slots = own["slot"].to_numpy(float)
        if outcome == "waiting":
            edges = band.base - np.array([slots + 0.2, slots + 0.8]) * (band.below / max(band.waits, 1))
        else:
            edges = band.base + np.array([slots + 0.08, slots + 0.92]) * unit
        colour = COLOURS[outcome]
        # All but replies are outlined in their own colour: seen however short they were.
        edge, width = (
            ("white", 0.6) if outlined and outcome == "reply" else (colour, 0.3 if outcome == "reply" else 0.8)
        )
        bars = _corners(own["started"].to_numpy(), own["ended"].to_numpy(), *edges)
        kind = PolyCollection(list(bars), facecolor=colour, edgecolor=edge, linewidth=width, label=outcome)
        ax.add_collection(kind, autolim=False)


def _corners(
    left: npt.NDArray[Any], right: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Corners of one rectangle per bar, shape (bars, 4, 2)."""
    corners = [(left, low), (right, low), (right, high), (left, high)]
    return np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)


def _draw_areas(ax: Axes, band: _Band, unit: float, own: pd.DataFrame) -> None:
    edges = [*own["start"], own["end"].iloc[-1]]
    floor = np.zeros(len(own))
    # What went wrong lies at the bottom, where its height can be read.
    for outcome in reversed(OUTCOMES):
        height = floor + own[outcome].to_numpy()
        ax.stairs(
            band.base + height * unit, edges, baseline=band.base + floor * unit, fill=True, color=COLOURS[outcome],
            linewidth=0,
        )  # fmt: skip
        floor = height
    ax.stairs(band.base + own["most"].to_numpy() * unit, edges, baseline=None, color=INK, linewidth=0.6)
    if band.waits:
        ax.stairs(
            band.base - own["waiting"].to_numpy() * (band.below / band.waits), edges,
            baseline=band.base, fill=True, color=COLOURS["waiting"], linewidth=0,
        )  # fmt: skip
    broken = own[own["failures"] > 0]
    if len(broken):
        low = np.full(len(broken), band.base + band.body - _RUG * 0.8)
        marks = _corners(broken["start"].to_numpy(), broken["end"].to_numpy(), low, low + _RUG * 0.8)
        strength = 0.35 + 0.65 * (broken["failures"] / broken["attempts"]).to_numpy()
        rug = PolyCollection(list(marks), facecolor=COLOURS["failed"], linewidth=0, alpha=list(strength))
        ax.add_collection(rug, autolim=False)
