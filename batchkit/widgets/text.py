"""Progress as one line of text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchkit._logic.progress import Snapshot
    from batchkit.runs import Run

__all__ = ["TextView"]


class TextView:
    """A tqdm line on stderr: rows done, errors by kind, and at the end which providers were stopped."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None

    def show(self, snapshot: Snapshot) -> None:
        """Draw where the run stands."""
        if self._bar is None:
            self._bar = _bar(snapshot.rows, self._title)
        self._bar.n = snapshot.done
        notes = [f"{snapshot.reused:,} already answered"] if snapshot.reused else []
        notes += [f"{count} {kind}" for kind, count in snapshot.errors.items()]
        notes += [f"{lane.name}: stopped" for lane in snapshot.lanes if lane.stopped is not None]
        self._bar.set_postfix_str(", ".join(notes), refresh=False)
        self._bar.refresh()

    def close(self, run: Run) -> None:
        """Draw how it ended."""
        snapshot = run.snapshot
        self.show(snapshot)
        for text in _remarks(snapshot, run):
            self._bar.write(text, file=sys.stderr)
        self._bar.close()


def _remarks(snapshot: Snapshot, run: Run) -> Iterator[str]:
    """What is worth a line of its own: who was stopped first of all."""
    for lane in snapshot.lanes:
        if lane.stopped is not None:
            yield f"{lane.name} was stopped ({lane.stopped.kind}): {lane.stopped.message}"
    for lane in snapshot.lanes:
        for how in lane.adapted:
            yield f"{lane.name}: {how}"
    if snapshot.reused:
        yield f"{snapshot.reused:,} of {snapshot.rows:,} already answered: they cost nothing this time."
    if run.new_journal is not None:
        yield f"Finished answers are kept in {run.new_journal} (see bk.journal(); journal=False keeps none)."


def _bar(rows: int, title: str) -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # the waiting thread draws; tqdm's own would outlive the run

    # No percentage: tqdm rounds 99.9 up to 100.
    form = "{desc}: |{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
    return Bar(total=rows, desc=title, unit="row", file=sys.stderr, dynamic_ncols=True, bar_format=form)
