"""Settings side by side: what more in flight at once, or larger batches, came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from batchkit.errors import InputError
from batchkit.plots._canvas import (
    COLOURS,
    INK,
    PROVIDERS,
    QUIET,
    Picture,
    drawable,
    families,
    headline,
    inside,
    legend,
    number,
    style,
    title_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

__all__ = ["tuning"]

_WIDTH, _HEIGHT = 9.0, 4.8
_COLUMNS = (
    "setting", "concurrency", "batch_size", "batch_time", "rows_per_second", "failures", "rate_limited", "overloaded",
    "p50", "p99",
)  # fmt: skip
_TROUBLES = {"failures": "failed", "rate_limited": "rate-limited", "overloaded": "overloaded"}
_LATENCIES: Mapping[str, tuple[str, str, Any]] = {
    "p50": ("#0b5a8f", "solid", {"marker": "o", "markersize": 4}),
    "p99": ("#5ba3d0", "dashed", {"marker": "o", "markersize": 7, "markerfacecolor": "none"}),
}
"""Rings around points: both are seen where they are equal."""
_PACE = PROVIDERS[0]


@overload
def tuning(table: pd.DataFrame, recommended: str | None = None, *, title: str | None = None) -> Picture: ...
@overload
def tuning(table: pd.DataFrame, recommended: str | None = None, *, title: str | None = None, ax: Axes) -> Axes: ...
def tuning(
    table: pd.DataFrame, recommended: str | None = None, *, title: str | None = None, ax: Axes | None = None
) -> Picture | Axes:
    """Draw rows per second, p50 and p99 at each setting.

    Parameters
    ----------
    table : DataFrame
        `Tuning.table`: one row per setting.
    recommended : str, optional
        The setting to mark.
    title : str, optional
        Shown above the picture.
    ax : Axes, optional
        Where to draw. Default: a new `Picture`.

    Returns
    -------
    Picture or Axes
        Above, rows per second; below, seconds from request to reply; on the left by requests in
        flight at once, on the right by batch, where there are such settings. A dotted line is the
        pace that would grow in proportion to the requests in flight. Settings with failures or
        refusals have a cross, and say how many; the recommended one has a ring.

    Raises
    ------
    InputError
        A column is missing, or there is no setting.

    Examples
    --------
    >>> from batchkit.plots import tuning
    >>> tuning(tuned.table, "10 at once")                                         # doctest: +SKIP
    """
    missing = [name for name in _COLUMNS if name not in table.columns]
    if missing:
        raise InputError(f"This picture is drawn from the frame Tuning.table; this one has no column {missing[0]!r}.")
    if table.empty:
        raise InputError("There is nothing to draw: no setting was measured to its end.")
    parts = [part for part in (table[table["batch_size"].isna()], table[table["batch_size"].notna()]) if len(part)]
    if ax is not None:
        if title:
            headline(ax, drawable(title), lines=3)
        _draw_all(inside(ax, 2, len(parts), gap=0.2), parts, recommended)
        return ax
    picture = Picture.sized(_WIDTH, _HEIGHT + (0.35 if title else 0))
    title_of(picture, title)
    _draw_all(list(picture.subplots(2, len(parts), squeeze=False).flat), parts, recommended)
    return picture


def _draw_all(panels: Sequence[Axes], parts: Sequence[pd.DataFrame], recommended: str | None) -> None:
    # The same height side by side.
    tops = _top(parts, ["rows_per_second"]), _top(parts, list(_LATENCIES))
    for place, part in enumerate(parts):
        _draw(panels[place], panels[len(parts) + place], part, recommended, tops)


def _top(parts: Sequence[pd.DataFrame], columns: list[str]) -> float:
    highest = max((float(value) for part in parts for value in part[columns].to_numpy().flat if value > 0), default=0.8)
    return 1.25 * highest


def _draw(rate: Axes, latency: Axes, part: pd.DataFrame, recommended: str | None, tops: tuple[float, float]) -> None:
    by_batch = bool(part["batch_size"].notna().all())
    part = part if by_batch else part.sort_values("concurrency", kind="stable")
    places = [float(place) for place in (range(len(part)) if by_batch else part["concurrency"])]
    for ax in (rate, latency):
        style(ax, grid="both")
        _show_settings(ax, part, places, by_batch=by_batch)
    headline(rate, "rows per second", lines=1)
    headline(latency, "seconds from request to reply", lines=1)
    rate.set_ylim(0, tops[0])
    latency.set_ylim(0, tops[1])
    for ax in (rate, latency):
        ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
    look = "none" if by_batch else "solid"
    handles = [] if by_batch else _draw_proportion(rate, part, places)
    rate.plot(places, part["rows_per_second"], color=_PACE, linewidth=1.5, linestyle=look, marker="o", markersize=5)
    handles += _mark(rate, part, places, recommended)
    legend(rate, handles)
    for name, (colour, usual, marker) in _LATENCIES.items():
        line = "none" if by_batch else usual
        latency.plot(places, part[name], color=colour, linewidth=1.5, linestyle=line, label=name, **marker)
    legend(latency, latency.lines)
    latency.set_xlabel(
        "size of a batch, and the seconds it waits" if by_batch else "requests in flight at once, at most",
        fontsize=9, color=INK, fontfamily=families(),
    )  # fmt: skip


def _show_settings(ax: Axes, part: pd.DataFrame, places: Sequence[float], *, by_batch: bool) -> None:
    if by_batch:
        pairs = zip(part["batch_size"], part["batch_time"], strict=True)
        ax.set_xlim(-0.6, len(part) - 0.4)
        ax.set_xticks(places, [f"{size}\n{time:g} s" for size, time in pairs])
        return
    ax.set_xlim(0, max(places) * 1.08)
    # Ticks that would run into each other are left out, from the left.
    shown: list[float] = []
    for place in sorted(places, reverse=True):
        if not shown or shown[-1] - place >= 0.04 * max(places):
            shown.append(place)
    ax.xaxis.set_major_locator(FixedLocator(shown))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")


def _draw_proportion(ax: Axes, part: pd.DataFrame, places: Sequence[float]) -> list[Any]:
    """The pace of the lowest setting, were it to grow with the requests in flight."""
    each = float(part["rows_per_second"].iloc[0]) / places[0]
    if len(places) < 2 or not each > 0:
        return []
    ax.plot([0, places[-1]], [0, each * places[-1]], color=QUIET, linewidth=1.0, linestyle="dotted")
    return [Line2D([], [], color=QUIET, linestyle="dotted", label="in proportion")]


def _mark(ax: Axes, part: pd.DataFrame, places: Sequence[float], recommended: str | None) -> list[Any]:
    """Say how high each point is and what went wrong there, and ring the one to take."""
    handles: list[Any] = []
    for place, line in zip(places, part.to_dict("records"), strict=True):
        height = line["rows_per_second"]
        troubles = [f"{line[name]:,} {word}" for name, word in _TROUBLES.items() if line[name]]
        above = 9 if line["setting"] == recommended else 6
        note = ax.annotate(
            "\n".join([*reversed(troubles), number(height)]), (place, height), (0, above), textcoords="offset points",
            ha="center", va="bottom", fontsize=7.5, color=INK, fontfamily=families(), parse_math=False,
        )  # fmt: skip
        note.set_in_layout(False)
        if troubles:
            ax.plot([place], [height], color=COLOURS["failed"], marker="X", markersize=8, linestyle="none")
        if line["setting"] == recommended:
            ring: Any = {"marker": "o", "markersize": 13, "markerfacecolor": "none", "linestyle": "none"}
            ax.plot([place], [height], markeredgecolor=INK, markeredgewidth=1.4, **ring)
            handles.append(Line2D([], [], label="recommended", markeredgecolor=INK, **{**ring, "markersize": 8}))
    if part[list(_TROUBLES)].to_numpy().any():
        cross: Any = {"marker": "X", "linestyle": "none", "color": COLOURS["failed"]}
        handles.append(Line2D([], [], label="failures or refusals", **cross))
    return handles
