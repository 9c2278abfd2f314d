"""What all pictures share: the figure that shows itself, its colours, its letters."""

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "GRID",
    "INK",
    "PROVIDERS",
    "QUIET",
    "Picture",
    "blank",
    "caption",
    "counted",
    "drawable",
    "families",
    "headline",
    "inside",
    "legend",
    "number",
    "show_numbers",
    "style",
    "title_of",
]

COLOURS = {
    "reply": "#5ba3d0",
    "unusable": "#7b3f98",
    "rate_limited": "#edc53b",
    "failed": "#c8420b",
    "cancelled": "#3a3a3a",
    "waiting": "#d0d0d0",
}
"""By outcome. All differ in lightness as well as in hue: told apart by any eyes."""
PROVIDERS = ("#0072b2", "#d98200", "#009e73", "#a3367a", "#56b4e9", "#6b4226", "#000000")
GRID, INK, QUIET = "#e6e6e6", "#333333", "#6b6b6b"

_CHINESE = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR",
    "Hiragino Sans", "Yu Gothic", "Malgun Gothic", "Droid Sans Fallback", "Noto Serif CJK SC", "Noto Serif CJK JP",
    "SimHei", "SimSun", "Heiti SC", "Arial Unicode MS",
)  # fmt: skip
_FILES = ("cjk", "sourcehan", "wqy", "pingfang", "hiragino", "msyh", "simhei", "simsun", "droidsansfallback")
_LATIN = "DejaVu Sans"
"""Comes with matplotlib."""
_BOX = "□"
_LONGEST = 30


class Picture(Figure):
    """A matplotlib figure that shows itself in a notebook, without pyplot and its global state.

    Save it with ``picture.savefig("run.png")``; PDF and SVG work as well.
    """

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file:
            self.savefig(file, format="png")
            return file.getvalue()

    @classmethod
    def sized(cls, width: float, height: float) -> Picture:
        """An empty picture of so many inches."""
        return cls(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")


# ---- letters --------------------------------------------------------------------------------------


@functools.cache
def families() -> list[str]:
    """Fonts to draw with: matplotlib's own, and one that has Chinese characters, if there is any here."""
    if not _chinese():
        _add_new_fonts()
    return [_LATIN, *_chinese()[:1]]


def _chinese() -> list[str]:
    here = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _CHINESE if name in here]


def _add_new_fonts() -> None:
    """Tell matplotlib of fonts that were installed after it made its list, which it keeps for ever."""
    for path in sorted(font_manager.findSystemFonts()):
        name = Path(path).stem.lower()
        if any(part in name for part in _FILES) and "bold" not in name:
            with contextlib.suppress(OSError, RuntimeError):  # a file that is no font is none of ours
                font_manager.fontManager.addfont(path)


def drawable(text: object) -> str:
    """A text on one line, of moderate length, with a box for every character that no font here has."""
    line = " ".join(str(text).split())
    if len(line) > _LONGEST:
        line = line[: _LONGEST - 1] + "…"
    known = _characters()
    return "".join(character if ord(character) in known else _BOX for character in line)


@functools.cache
def _characters() -> frozenset[int]:
    paths = [font_manager.findfont(name, fallback_to_default=True) for name in families()]
    return frozenset().union(*(font_manager.get_font(path).get_charmap() for path in paths))


def number(value: float) -> str:
    """Three significant digits at most, without an exponent."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value.is_integer() else f"{value:.3g}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count and what it counts."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


# ---- axes -----------------------------------------------------------------------------------------


def style(ax: Axes, *, grid: Any = "x") -> None:
    """Quiet axes: a light grid, no frame, no ticks."""
    ax.set_facecolor("white")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(GRID)
    ax.set_axisbelow(True)
    ax.grid(visible=False)
    ax.grid(axis=grid, color=GRID, linewidth=0.8)
    ax.tick_params(length=0, labelsize=8, labelcolor=QUIET, labelfontfamily=_LATIN)


def show_numbers(ax: Axes, seconds: float, *, label: str = "seconds since the run began") -> None:
    """A time axis from 0 to so many seconds."""
    ax.set_xlim(0, max(seconds, 1e-6) * 1.01)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=10))
    ax.set_xlabel(label, fontsize=9, color=INK, fontfamily=_LATIN)


def headline(ax: Axes, text: str, *, lines: int = 0) -> None:
    """A title above axes, on the left, and above so many lines of legend."""
    pad = 5 + 13 * lines
    ax.set_title(text, loc="left", fontsize=9, color=INK, parse_math=False, fontfamily=families(), pad=pad)


def caption(ax: Axes, at: float, text: str) -> None:
    """A line of text within axes, from their left edge on, standing on a height of the data."""
    note = ax.annotate(
        text, (0, at), (2, 3), xycoords=("axes fraction", "data"), textcoords="offset points", va="bottom",
        fontsize=8.5, color=INK, parse_math=False, fontfamily=families(),
    )  # fmt: skip
    note.set_in_layout(False)


def title_of(picture: Picture, title: str | None) -> None:
    """A title above all axes, if one is wanted."""
    if title:
        line = " ".join(str(title).split())
        text = " ".join(drawable(word) for word in line.split(" "))
        picture.suptitle(text, x=0.01, ha="left", fontsize=11, color=INK, parse_math=False, fontfamily=families())


def legend(ax: Axes, handles: Sequence[Any], *, columns: int | None = None) -> None:
    """What the colours mean, above the axes on the right."""
    if handles:
        box = ax.legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns or len(handles),
            frameon=False, fontsize=8, labelcolor=INK, borderaxespad=0.1, handlelength=1.6, columnspacing=1.2,
            prop={"family": families(), "size": 8},
        )  # fmt: skip
        for text in box.get_texts():
            text.set_parse_math(False)


def blank(ax: Axes) -> None:
    """Say that there is nothing to draw."""
    ax.set_yticks([])
    ax.text(0.5, 0.5, "no requests", ha="center", va="center", transform=ax.transAxes, color=QUIET, fontfamily=_LATIN)


def inside(ax: Axes, rows: int, columns: int = 1, *, gap: float = 0.2) -> list[Axes]:
    """Axes side by side or one above the other within ``ax``, which itself is no longer seen."""
    ax.set_axis_off()
    height, width = (1 - gap * (rows - 1)) / rows, (1 - gap * (columns - 1)) / columns
    return [
        ax.inset_axes((column * (width + gap), (rows - 1 - row) * (height + gap), width, height))
        for row in range(rows)
        for column in range(columns)
    ]
