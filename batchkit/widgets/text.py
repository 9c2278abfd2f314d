"""Progress as text on stderr: a line that is rewritten, or in a log a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from batchkit.widgets.content import Pace, picture, render_line, render_text
from batchkit.widgets.remarks import hint, remarks

if TYPE_CHECKING:
    from batchkit._logic.progress import LaneSnapshot, Snapshot
    from batchkit.runs import Run

__all__ = ["LogView", "TextView"]

_EVERY = 30.0
"""Seconds between two lines in a log."""


class TextView:
    """A tqdm line: rows done, errors by kind, who waits for what. At the end the summary stands in its place."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None
        self._pace = Pace()

    def attach(self, run: Run) -> None:
        """Show nothing yet: most small runs are over before there is anything to see."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw where the run stands."""
        if self._bar is None:
            self._bar = _bar(snapshot.rows, self._title)
        self._pace.add(snapshot)
        self._bar.n, self._bar.elapsed, self._bar.rate = snapshot.done, snapshot.elapsed, self._pace.of_all(snapshot)
        shown = picture(self._title, snapshot)
        notes = [f"{snapshot.reused:,} already answered"] if snapshot.reused else []
        notes += [f"{count:,} {kind}" for kind, count in snapshot.errors.items()]
        notes += [
            f"{bar.name}: {_state(lane, bar.notes)}"
            for lane, bar in zip(snapshot.lanes, shown.bars, strict=True)
            if bar.notes or lane.stopped is not None
        ]
        self._bar.set_postfix_str(", ".join([*notes, hint(button=False, blocking=True, terminal=True)]), refresh=False)
        self._bar.refresh()

    def close(self, run: Run) -> None:
        """Leave the summary behind."""
        if self._bar is not None:
            self._bar.close()
        _say(render_text(picture(self._title, run.snapshot, notes=remarks(run))))


class LogView:
    """A line every half minute, and the summary at the end: for a stderr that nobody watches."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._clock = clock
        self._said = clock()
        self._pace = Pace()

    def attach(self, run: Run) -> None:
        """Say nothing yet."""

    def show(self, snapshot: Snapshot) -> None:
        """Say where the run stands, if that was not said lately."""
        self._pace.add(snapshot)
        if self._clock() - self._said >= _EVERY:
            self._said = self._clock()
            _say(render_line(picture(self._title, snapshot, self._pace)))

    def close(self, run: Run) -> None:
        """Leave the summary behind."""
        _say(render_text(picture(self._title, run.snapshot, notes=remarks(run))))


def _state(lane: LaneSnapshot, notes: tuple[str, ...]) -> str:
    return "stopped" if lane.stopped is not None else notes[0]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _bar(rows: int, title: str) -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # the waiting thread draws; tqdm's own would outlive the run
        elapsed = 0.0
        rate: float | None = None

        @property
        def format_dict(self) -> Any:
            # tqdm's own go by the wall clock, which jumps, and count rows that were answered before.
            return {**super().format_dict, "elapsed": self.elapsed, "rate": self.rate}

    # No percentage: tqdm rounds 99.9 up to 100.
    form = "{desc}: |{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
    return Bar(total=rows, desc=title, unit="row", file=sys.stderr, dynamic_ncols=True, bar_format=form, leave=False)
