"""Progress in an output of a notebook that is rewritten: HTML, or text alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchkit.widgets import kernel
from batchkit.widgets.content import Pace, bundle, picture
from batchkit.widgets.remarks import remarks

if TYPE_CHECKING:
    from batchkit._logic.progress import Snapshot
    from batchkit.runs import Run

__all__ = ["HtmlView"]


class HtmlView:
    """A display that is updated, and at the end becomes the summary.

    Parameters
    ----------
    title : str
        The output's name.
    hint : str
        How to stop the run.
    html : bool
        Whether to show more than text.
    """

    def __init__(self, title: str, hint: str, *, html: bool = True) -> None:
        self._title = title
        self._hint = hint
        self._html = html
        self._pace = Pace()
        self._handle: Any = None

    def attach(self, run: Run) -> None:
        """Appear, in the output of the cell that runs now."""
        self._handle = kernel.appear(self._now(run.snapshot))

    def show(self, snapshot: Snapshot) -> None:
        """Draw where the run stands."""
        self._handle.update(self._now(snapshot), raw=True)

    def close(self, run: Run) -> None:
        """Leave the summary behind."""
        summary = picture(self._title, run.snapshot, notes=remarks(run))
        self._handle.update(bundle(summary, html=self._html), raw=True)

    def _now(self, snapshot: Snapshot) -> dict[str, str]:
        self._pace.add(snapshot)
        return bundle(picture(self._title, snapshot, self._pace, (self._hint,)), html=self._html)
