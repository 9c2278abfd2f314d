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
    said = [f"{_more(run.blank)} blank and not asked about."] if run.blank else []
    said += [f"{_more(run.unrouted)} sent to nobody by the route."] if run.unrouted else []
    if run.new_journal is not None:
        said.append(f"Finished answers are kept in {run.new_journal} (see bk.journal(); journal=False keeps none).")
    return tuple(said)


def _more(count: int) -> str:
    return f"{count:,} more {'row is' if count == 1 else 'rows are'}"
