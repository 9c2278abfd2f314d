"""Rows per second and requests in flight over time, against what the providers allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from batchkit.plots._canvas import (
    PROVIDERS,
    Picture,
    blank,
    drawable,
    headline,
    inside,
    legend,
    number,
    show_numbers,
    style,
    title_of,
)
from batchkit.plots._data import providers_of, throughput_data
from batchkit.records import Limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_throughput", "throughput"]

_WIDTH, _HEIGHT = 9.0, 4.6
_NEAR = 3.0
"""A limit further up than so many times the highest value is named, not drawn: it would flatten the rest."""
_LEGEND_COLUMNS = 3
_NO_LIMITS: Mapping[str, Limits] = {}


@overload
def throughput(
    requests: pd.DataFrame, limits: Mapping[str, Limits] = ..., *, title: str | None = None, bins: int | None = None
) -> Picture: ...
@overload
def throughput(
    requests: pd.DataFrame,
    limits: Mapping[str, Limits] = ...,
    *,
    title: str | None = None,
    bins: int | None = None,
    ax: Axes,
) -> Axes: ...
def throughput(
    requests: pd.DataFrame,
    limits: Mapping[str, Limits] = _NO_LIMITS,
    *,
    title: str | None = None,
    bins: int | None = None,
    ax: Axes | None = None,
) -> Picture | Axes:
    """Draw how many rows a second came back and how many requests were in flight, with the limits beside them.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`: one row per attempt.
    limits : mapping of str to Limits, optional
        By provider: ``max_concurrency``, ``rpm`` and ``tpm``.
    title : str, optional
        Shown above the picture.
    bins : int, optional
        Number of stretches of time. Default: 12 to 120, by the number of requests.
    ax : Axes, optional
        Where to draw. Default: a new `Picture`.

    Returns
    -------
    Picture or Axes
        Above, rows whose reply came, per second; below, the mean number of requests in flight;
        a line per provider each, and its limit as a dashed line. ``rpm`` and ``tpm`` are shown as
        the rows per second that they allow, at the run's own rows per request and tokens per
        request, whichever is stricter. A limit far above is named in the legend only.

    Raises
    ------
    InputError
        A column is missing, or ``bins`` is below 1.

    Examples
    --------
    >>> import batchkit as bk
    >>> from batchkit.plots import throughput
    >>> throughput(bk.last_run().requests)                                        # doctest: +SKIP
    """
    picture = None
    if ax is None:
        picture = Picture.sized(_WIDTH, _HEIGHT + (0.35 if title else 0))
        rate, flight = picture.subplots(2, 1, sharex=True)
        title_of(picture, title)
    else:
        if title:
            headline(ax, drawable(title), lines=3)
        rate, flight = inside(ax, 2, gap=0.45)
    draw_throughput(rate, flight, requests, limits, bins)
    if ax is not None:
        return ax
    rate.set_xlabel("")
    assert picture is not None
    return picture


def draw_throughput(
    rate: Axes, flight: Axes, requests: pd.DataFrame, limits: Mapping[str, Limits], bins: int | None = None
) -> None:
    """Draw rows per second into one pair of axes, requests in flight into the other."""
    data = throughput_data(requests, bins=bins)
    names = providers_of(data)
    allowed = {name: rows_allowed(requests[requests["provider"] == name], limits.get(name)) for name in names}
    slots = {
        name: (float(limits[name].max_concurrency), f"at most {limits[name].max_concurrency}")
        for name in names
        if name in limits
    }
    lines = math.ceil(len(names) / _LEGEND_COLUMNS)
    step = f", means of {number(float(data['end'].iloc[0]))} s" if len(data) else ""
    for ax, column, ceilings, text in (
        (rate, "rows_per_second", allowed, f"rows per second{step}"),
        (flight, "in_flight", slots, "requests in flight"),
    ):
        style(ax, grid="both")
        headline(ax, text, lines=lines)
        if not names:
            blank(ax)
            continue
        _draw_lines(ax, data, column, {name: limit for name, limit in ceilings.items() if limit is not None})
        show_numbers(ax, float(data["end"].max()))


def rows_allowed(own: pd.DataFrame, limits: Limits | None) -> tuple[float, str] | None:
    """Rows per second that a provider's limits per minute allow at most, and which one does; None without any."""
    if limits is None or own.empty:
        return None
    rows_per_call = len(own) / len(own.drop_duplicates(["started", "ended"]))
    found = []
    if limits.rpm is not None:
        found.append((limits.rpm / 60 * rows_per_call, f"rpm {limits.rpm:,.0f}"))
    replied = own[own["error"].isna()]
    if limits.tpm is not None and {"tokens_in", "tokens_out"} <= set(own.columns):
        tokens = (replied["tokens_in"] + replied["tokens_out"]).astype(float).mean()
        if tokens > 0:
            found.append((limits.tpm / 60 / tokens, f"tpm {limits.tpm:,.0f}"))
    return min(found, default=None)


def _draw_lines(ax: Axes, data: pd.DataFrame, column: str, ceilings: Mapping[str, tuple[float, str]]) -> None:
    highest = max(float(data[column].max()), 1e-9)
    handles: list[Any] = []
    top = highest
    for place, (name, own) in enumerate((name, data[data["provider"] == name]) for name in providers_of(data)):
        colour = PROVIDERS[place % len(PROVIDERS)]
        look: Any = ("solid", "dashdot")[place // len(PROVIDERS) % 2]
        edges = [*own["start"], own["end"].iloc[-1]]
        ax.stairs(own[column].to_numpy(), edges, baseline=None, color=colour, linewidth=1.5, linestyle=look)
        said = drawable(name)
        if name in ceilings:
            ceiling, why = ceilings[name]
            is_near = ceiling <= _NEAR * highest
            said += f" ({why}{'' if is_near else ', far above'})"
            if is_near:
                top = max(top, ceiling)
                ax.axhline(ceiling, color=colour, linewidth=1.0, linestyle="dashed")
        handles.append(Line2D([], [], color=colour, linestyle=look, label=said))
    ax.set_ylim(0, top * 1.08)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=column == "in_flight" and top >= 2))
    legend(ax, handles, columns=min(len(handles), _LEGEND_COLUMNS))
