"""Progress as one line of text."""

from __future__ import annotations

import sys
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
            from tqdm import tqdm

            self._bar = tqdm(total=snapshot.rows, desc=self._title, unit="row", file=sys.stderr, dynamic_ncols=True)
        self._bar.n = snapshot.done
        notes = [f"{count} {kind}" for kind, count in snapshot.errors.items()]
        notes += [f"{lane.name}: stopped" for lane in snapshot.lanes if lane.stopped is not None]
        self._bar.set_postfix_str(", ".join(notes), refresh=False)
        self._bar.refresh()

    def close(self, run: Run) -> None:
        """Draw how it ended."""
        snapshot = run.snapshot
        for lane in snapshot.lanes:
            if lane.stopped is not None:
                text = f"{lane.name} was stopped ({lane.stopped.kind}): {lane.stopped.message}"
                print(text, file=sys.stderr)
        self.show(snapshot)
        self._bar.close()
