"""How long replies took, provider by provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

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
    style,
    title_of,
)
from batchkit.plots._data import latency_data

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["latency"]

_WIDTH, _BAND = 9.0, 0.95
_QUANTILES: dict[str, Any] = {"p50": "solid", "p90": "dashed", "p99": "dotted"}
_SINGLE = 200
"""Up to so many replies each is also a tick of its own: a shape made of few is no distribution."""
_WIDE = 20.0
"""If the longest reply took so many times as long as half of the quickest provider's, the scale is logarithmic."""
_BODY, _TICKS = 0.58, 0.1
"""Of a band's height of 1: the histogram, and the ticks below it. The rest is its title."""


@overload
def latency(requests: pd.DataFrame, *, title: str | None = None) -> Picture: ...
@overload
def latency(requests: pd.DataFrame, *, title: str | None = None, ax: Axes) -> Axes: ...
def latency(requests: pd.DataFrame, *, title: str | None = None, ax: Axes | None = None) -> Picture | Axes:
    """Draw how the seconds from request to reply are distributed at each provider.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`: one row per attempt. Attempts without a reply are counted, not drawn.
    title : str, optional
        Shown above the picture.
    ax : Axes, optional
        Where to draw. Default: a new `Picture`.

    Returns
    -------
    Picture or Axes
        A histogram per provider, each as high as its fullest bin, with lines at the quantiles
        0.50, 0.90 and 0.99. Up to 200 replies are also shown one by one, as ticks below. The time
        axis is logarithmic, and says so, if the longest reply took over 20 times the least p50.

    Raises
    ------
    InputError
        A column is missing.

    Examples
    --------
    >>> import batchkit as bk
    >>> from batchkit.plots import latency
    >>> latency(bk.last_run().requests)                                           # doctest: +SKIP
    """
    table = latency_data(requests)
    picture = None
    if ax is None:
        picture = Picture.sized(_WIDTH, _BAND * max(len(table), 1) + 0.7 + (0.35 if title else 0))
        ax = picture.subplots()
        title_of(picture, title)
    elif title:
        headline(ax, drawable(title), lines=1)
    _draw(ax, requests, table)
    return picture if picture is not None else ax


def _draw(ax: Axes, requests: pd.DataFrame, table: pd.DataFrame) -> None:
    style(ax)
    replied = requests[requests["error"].isna()]
    seconds = (replied["ended"] - replied["started"]).to_numpy(float)
    is_log = bool(len(seconds) and seconds.max() > _WIDE * max(float(table["p50"].min()), 1e-6))
    ax.set_ylim(0, max(len(table), 1))
    ax.set_yticks([])
    remarks = ", logarithmic" * is_log + ", failed attempts are not drawn" * bool(table["failures"].any())
    ax.set_xlabel(f"seconds from request to reply{remarks}", fontsize=9, color=INK)
    if not len(seconds):
        blank(ax)
        return
    bins = _bins(seconds, is_log=is_log)
    if is_log:
        ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if is_log else MaxNLocator(nbins=8))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    ax.set_xlim(bins[0], bins[-1])
    for place, name in enumerate(reversed(table.index)):
        _draw_band(ax, place, str(name), seconds[(replied["provider"] == name).to_numpy(bool)], table.loc[name], bins)
    styles: list[Any] = [Line2D([], [], color=INK, linestyle=line, label=name) for name, line in _QUANTILES.items()]
    legend(ax, styles)


def _bins(seconds: npt.NDArray[Any], *, is_log: bool) -> npt.NDArray[Any]:
    """Edges from 0, or on a logarithmic axis from just below the shortest, to just above the longest."""
    count = int(np.clip(len(seconds) // 5, 20, 90))
    longest = max(float(seconds.max()), 1e-6) * 1.03
    return (
        np.geomspace(max(float(seconds.min()), 1e-6) * 0.97, longest, count)
        if is_log
        else np.linspace(0, longest, count)
    )


def _draw_band(
    ax: Axes, place: int, name: str, seconds: npt.NDArray[Any], line: pd.Series[Any], bins: npt.NDArray[Any]
) -> None:
    floor = place + _TICKS
    counts = np.histogram(seconds, bins)[0]
    if counts.any():
        heights = counts / counts.max() * _BODY
        ax.stairs(floor + heights, bins, baseline=floor, fill=True, color=COLOURS["reply"], linewidth=0)
    if len(seconds) <= _SINGLE:
        ax.vlines(seconds, place + 0.01, floor - 0.02, color=INK, linewidth=0.6)
    for quantile, look in _QUANTILES.items():
        ax.vlines(line[quantile], floor, floor + _BODY, color=INK, linewidth=1.2, linestyle=look)
    ax.axhline(floor, color=QUIET, linewidth=0.6)
    spread = ", ".join(f"{quantile} {number(line[quantile])}" for quantile in _QUANTILES)
    said = counted(len(seconds), "reply", "replies") + (f": {spread} s" if len(seconds) else "")
    caption(ax, floor + _BODY, f"{drawable(name)}   {said}")
