"""Progress as a widget with a Cancel button: the one door to ipywidgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchkit.widgets import kernel
from batchkit.widgets.content import Pace, Picture, bundle, picture, render_html
from batchkit.widgets.remarks import hint, remarks

if TYPE_CHECKING:
    from batchkit._logic.progress import Snapshot
    from batchkit.runs import Run

__all__ = ["WidgetView"]


class WidgetView:
    """A panel and a button, which at the end become the summary.

    The button is there only while a click can arrive.

    Parameters
    ----------
    title : str
        The output's name.
    blocking : bool
        Whether the cell goes on until the run has ended.
    """

    def __init__(self, title: str, *, blocking: bool = True) -> None:
        self._title = title
        self._blocking = blocking
        self._pace = Pace()
        self._offered = not blocking
        """Whether the button is to be seen."""
        self._clicked = False
        self._run: Run | None = None
        self._handle: Any = None

    def attach(self, run: Run) -> None:
        """Appear, in the output of the cell that runs now."""
        import ipywidgets

        self._run = run
        shown = self._now(run.snapshot)
        self._panel = ipywidgets.HTML(render_html(shown))
        self._button = ipywidgets.Button(description="Cancel", tooltip="Send nothing new; keep what is finished")
        self._button.layout.display = "" if self._offered else "none"
        self._button.on_click(self._cancel)
        self._box = ipywidgets.VBox([self._panel, self._button])
        # Whoever cannot draw the widget shows the HTML or the text instead.
        self._handle = kernel.appear({**self._box._repr_mimebundle_(), **bundle(shown)})
        kernel.unpin(self._button)

    def show(self, snapshot: Snapshot) -> None:
        """Draw where the run stands."""
        offered = not self._clicked and (not self._blocking or kernel.takes_clicks())
        if offered != self._offered:
            self._offered = offered
            self._button.layout.display = "" if offered else "none"
        kernel.unpin(self._button)
        self._panel.value = render_html(self._now(snapshot))

    def close(self, run: Run) -> None:
        """Leave the summary behind."""
        summary = picture(self._title, run.snapshot, notes=remarks(run))
        self._handle.update(bundle(summary), raw=True)
        self._run = None
        for widget in (self._box, self._panel, self._button):
            widget.close()

    def _cancel(self, _: object) -> None:
        # Comes on a thread of the kernel's choosing: nothing may be drawn here.
        self._clicked = True
        if self._run is not None:
            self._run.cancel()

    def _now(self, snapshot: Snapshot) -> Picture:
        self._pace.add(snapshot)
        said = "Cancelling: answers on their way may still arrive." if self._clicked else self._hint()
        return picture(self._title, snapshot, self._pace, (said,))

    def _hint(self) -> str:
        return hint(button=self._offered, blocking=self._blocking)
