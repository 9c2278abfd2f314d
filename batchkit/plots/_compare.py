"""Runs side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import pandas as pd

from batchkit.plots._canvas import (
    COLOURS,
    INK,
    QUIET,
    Picture,
    drawable,
    families,
    headline,
    inside,
    number,
    style,
    title_of,
)
from batchkit.plots._data import RunLike, compare_data

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["compare"]

_WIDTH, _ROW = 11.0, 0.55
_SHADES = {"p50": "#0b5a8f", "p90": "#5ba3d0", "p99": "#b9d9ee"}


@dataclass(frozen=True, slots=True)
class _Measure:
    """One column of the picture: its title, and the columns of the table that it shows, with their colours."""

    title: str
    colours: Mapping[str, str]


_ALWAYS = (
    _Measure("seconds", {"seconds": COLOURS["reply"]}),
    _Measure("rows per second", {"rows_per_second": COLOURS["reply"]}),
    _Measure("latency in s: p50, p90, p99", _SHADES),
    _Measure("rows failed", {"failed": COLOURS["failed"]}),
)
_REUSED = _Measure("rows answered before", {"reused": COLOURS["waiting"]})


@overload
def compare(runs: Mapping[str, RunLike], *, title: str | None = None) -> Picture: ...
@overload
def compare(runs: Mapping[str, RunLike], *, title: str | None = None, ax: Axes) -> Axes: ...
def compare(runs: Mapping[str, RunLike], *, title: str | None = None, ax: Axes | None = None) -> Picture | Axes:
    """Draw runs side by side: seconds, rows per second, latencies and failures, a bar and its number each.

    Parameters
    ----------
    runs : mapping of str to Run
        The runs by the name they are to be shown under, from above.
    title : str, optional
        Shown above the picture.
    ax : Axes, optional
        Where to draw. Default: a new `Picture`.

    Returns
    -------
    Picture or Axes
        A row per run and a column per measure, as in the table of `compare_data`. Where a run
        found answers of earlier ones, a column says how many: they took no time.

    Raises
    ------
    InputError
        There is no run.

    Examples
    --------
    >>> from batchkit.plots import compare
    >>> compare({"one at a time": serial, "16 at once": ours})                    # doctest: +SKIP
    """
    table = compare_data(runs)
    measures = [*_ALWAYS, *([_REUSED] if table["reused"].any() else [])]
    if ax is not None:
        if title:
            headline(ax, drawable(title), lines=1)
        _draw(inside(ax, 1, len(measures), gap=0.06), table, measures)
        return ax
    picture = Picture.sized(_WIDTH, _ROW * len(table) + 0.6 + (0.35 if title else 0))
    title_of(picture, title)
    _draw(picture.subplots(1, len(measures), squeeze=False)[0], table, measures)
    return picture


def _draw(panels: Sequence[Axes], table: pd.DataFrame, measures: Sequence[_Measure]) -> None:
    for place, (panel, measure) in enumerate(zip(panels, measures, strict=True)):
        _draw_measure(panel, table, measure, named=place == 0)


def _draw_measure(ax: Axes, table: pd.DataFrame, measure: _Measure, *, named: bool) -> None:
    style(ax)
    headline(ax, measure.title)
    thickness = 0.72 / len(measure.colours)
    longest = max(float(table[list(measure.colours)].fillna(0.0).to_numpy().max()), 1e-9)
    for place in range(len(table)):
        top = place - 0.36
        for index, (column, colour) in enumerate(measure.colours.items()):
            value = float(table[column].iloc[place])
            length = 0.0 if math.isnan(value) else value
            middle = top + (index + 0.5) * thickness
            if length > 0:
                ax.barh(middle, length, thickness * 0.9, color=colour, linewidth=0)
            ax.annotate(
                number(value), (length, middle), (3, 0),
                textcoords="offset points", va="center", color=INK, fontsize=8 if len(measure.colours) == 1 else 7,
            )  # fmt: skip
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlim(0, longest * 1.3)
    ax.set_xticks([])
    names = [drawable(name) for name in table.index] if named else [""] * len(table)
    ax.set_yticks(range(len(table)), names, color=INK, parse_math=False)
    ax.tick_params(axis="y", labelsize=9, labelcolor=INK, labelfontfamily=families())
    ax.spines["left"].set_visible(True)
    ax.spines["left"].set_color(QUIET)
    ax.spines["bottom"].set_visible(False)
