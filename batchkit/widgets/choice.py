"""Which view a run gets, and how often it is drawn."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from batchkit.widgets import kernel
from batchkit.widgets.remarks import hint

if TYPE_CHECKING:
    from batchkit._logic.progress import Snapshot
    from batchkit.runs import Run

__all__ = ["Paced", "choose"]

_BETWEEN = 0.2
"""Seconds between two pictures."""


class _View(Protocol):
    def attach(self, run: Run) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...

    def close(self, run: Run) -> None: ...


def choose(progress: bool | str | None, *, blocking: bool = True) -> Callable[[str], Paced] | None:
    """Choose how a run shows itself.

    Parameters
    ----------
    progress : {None, True, False, "widget", "html", "text"}
        None and True go by where this runs: widgets in a notebook that has them, else HTML there,
        else text. False shows nothing. Outside a notebook everything is text.
    blocking : bool
        Whether the cell goes on until the run has ended; False for a run in the background.

    Returns
    -------
    callable or None
        Makes a view from a title. It appears with ``attach(run)``, in the thread of the cell;
        ``show`` and ``close`` may be called from another one.

    Examples
    --------
    >>> choose(False) is None
    True
    """
    if progress is False:
        return None
    return lambda title: Paced(lambda: _view(title, progress, blocking))


def _view(title: str, progress: bool | str | None, blocking: bool) -> _View:
    if kernel.notebook() is None:
        from batchkit.widgets.text import LogView, TextView

        return TextView(title) if sys.stderr.isatty() else LogView(title)
    if progress in ("text", "html") or not (progress == "widget" or kernel.has_widgets()):
        from batchkit.widgets.html import HtmlView

        # Text, too, is an output of its own: what a thread prints lands in whichever cell runs.
        return HtmlView(title, hint(button=False, blocking=blocking), html=progress != "text")
    from batchkit.widgets.widget import WidgetView

    return WidgetView(title, blocking=blocking)


class Paced:
    """A view that is drawn five times a second at most.

    Parameters
    ----------
    make : callable
        Makes the view.
    clock : callable
        Seconds.
    """

    def __init__(self, make: Callable[[], _View], clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._due = 0.0
        self._view: _View | None = None

    def attach(self, run: Run) -> None:
        """Appear. Called in the thread of the cell, before anything else is shown."""
        self._due = self._clock() + _BETWEEN
        view = self._make()
        view.attach(run)
        self._view = view

    def show(self, snapshot: Snapshot) -> None:
        """Draw where the run stands, unless it was drawn just now."""
        # A tick may come a little early; the next is then due all the later.
        early = self._clock() + _BETWEEN / 10
        if self._view is not None and early >= self._due:
            self._due = max(self._due, early - _BETWEEN / 10) + _BETWEEN
            self._view.show(snapshot)

    def close(self, run: Run) -> None:
        """Draw how it ended, always."""
        if self._view is not None:
            self._view.close(run)
