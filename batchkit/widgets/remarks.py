"""What a view says of a run beside its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchkit.runs import Run

__all__ = ["hint", "remarks"]


def hint(*, button: bool, blocking: bool, terminal: bool = False) -> str:
    """How to stop, and that this loses nothing."""
    if terminal:
        return "Ctrl-C keeps finished rows."
    stop = "the stop button" if blocking else "job.cancel()"
    return f"Cancel, or {stop}, keeps finished rows." if button else f"{stop[0].upper()}{stop[1:]} keeps finished rows."


def remarks(run: Run) -> tuple[str, ...]:
    """What is worth a line of its own once a run is over."""
    if run.new_journal is None:
        return ()
    return (f"Finished answers are kept in {run.new_journal} (see bk.journal(); journal=False keeps none).",)
