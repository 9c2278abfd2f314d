"""Draw what was measured last: CPU per request by tool, and every number that has a target.

``python benchmarks/plot.py [FILE]``, by default build/benchmarks.png; docs/benchmarks.png is the one that is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import FILE, latest

from batchkit.plots._canvas import INK, PROVIDERS, QUIET, Picture, headline, number, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE, EDGES, FOOT = 0.24, 0.8, 0.5
"""Inches."""
COLOURS = {"ours": PROVIDERS[0], "floor": "#9a9a9a", "peer": "#d0d0d0"}
KEPT, MISSED = PROVIDERS[0], "#c8420b"


def draw_clients(ax: Axes, lines: list[dict[str, Any]]) -> None:
    lines = sorted(lines, key=lambda line: float(line["micros"]), reverse=True)
    ours = next((line["micros"] for line in lines if line["role"] == "ours"), None)  # of both, the dearer
    names = [_packed(line) for line in lines]
    ax.barh(names, [line["micros"] for line in lines], color=[COLOURS[line["role"]] for line in lines], height=0.7)
    for place, line in enumerate(lines):
        times = f", {number(line['micros'] / ours)} × ours" if ours and line["role"] == "peer" else ""
        text = f"{number(line['micros'])} µs{times}"
        ax.annotate(
            text, (line["micros"], place), (4, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )
    ax.set_xlim(0, max(line["micros"] for line in lines) * 1.3)
    style(ax)
    headline(ax, "CPU per request of the same job: microseconds, zero latency, medians")


def _packed(line: dict[str, Any]) -> str:
    packed = "" if line["rows_a_request"] == 1 else f" ({line['rows_a_request']:.0f} rows a request)"
    return f"{line['name']}{packed}"


def draw_promises(ax: Axes, lines: list[dict[str, Any]]) -> None:
    lines = lines[::-1]
    for place, line in enumerate(lines):
        measured, target = line["measured"], line["target"]
        share = max(0.0, target / measured if line["at_least"] else measured / target)
        colour = KEPT if share <= 1 else MISSED
        ax.plot([0, share], [place, place], color=colour, linewidth=1.2, alpha=0.4)
        ax.plot(share, place, "o", color=colour, markersize=5)
        text = f"{measured:.4g}, {'at least' if line['at_least'] else 'at most'} {target:.4g}"
        ax.annotate(
            text, (max(share, 1), place), (8, 0), textcoords="offset points", va="center", fontsize=8, color=INK
        )
    ax.axvline(1, color=INK, linewidth=1)
    ax.set_yticks(range(len(lines)), [line["name"] for line in lines])
    ax.set_ylim(-0.7, len(lines) - 0.3)
    ax.set_xlim(0, 1.3 * max(ax.get_xlim()[1], 1.2))
    style(ax)
    headline(ax, "What was measured by its target, or the target by it where more is better: kept up to 1")


def foot(lines: list[dict[str, Any]]) -> str:
    """Where, with what, and when: more than one line if not all was measured in one place."""
    days = sorted({line["at"][:10] for line in lines})
    loads = sorted(float(line["load"]) for line in lines if line["load"] != "unknown")
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    load = f", load {loads[0]:.1f} to {loads[-1]:.1f}" if loads else ""
    return "\n".join([*dict.fromkeys(line["machine"] for line in lines), f"{when}{load}"])


def main() -> int:
    clients, promises = latest("client"), latest("promise")
    if not promises:
        print(f"Nothing to draw: {FILE.name} has no numbers yet.")
        return 1
    rows = [len(lines) for lines in (clients, promises) if lines]
    height = sum(rows) * LINE + len(rows) * EDGES + FOOT
    picture = Picture.sized(10.0, height)
    axes = picture.subplots(len(rows), squeeze=False, height_ratios=[LINE * row + EDGES for row in rows])[:, 0]
    if clients:
        draw_clients(axes[0], clients)
    draw_promises(axes[-1], promises)
    picture.supxlabel(foot([*clients, *promises]), x=0.01, ha="left", fontsize=7.5, color=QUIET)
    file = Path(sys.argv[1] if len(sys.argv) > 1 else FILE.with_name("benchmarks.png"))
    picture.savefig(file, dpi=120)
    print(f"\nDrawn: {file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
