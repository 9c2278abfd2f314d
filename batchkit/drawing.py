"""How a run draws itself: what is drawn stands above runs, so it is handed down to them here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from batchkit.errors import InputError
from batchkit.runs import Run

if TYPE_CHECKING:
    from batchkit.plots import Picture

__all__ = ["compare", "draw"]


def draw(kind: str, run: Run, settings: Mapping[str, Any]) -> Any:
    """Draw one kind of picture of a run; matplotlib is loaded for the first."""
    from batchkit import plots

    limits = {lane.name: lane.limits for lane in run.lanes}
    match kind:
        case "timeline":
            return plots.timeline(run.requests, **settings)
        case "latency":
            return plots.latency(run.requests, **settings)
        case "throughput":
            return plots.throughput(run.requests, limits, **settings)
        case _:
            return plots.dashboard(run.requests, limits, **settings)


def compare(*runs: Run, **named: Run) -> Picture:
    """Draw runs side by side: wall time, rows per second, latencies, failures.

    Parameters
    ----------
    *runs, **named : Run
        The runs; named ones are called so in the picture, others ``run 1``, ``run 2``, ...

    Returns
    -------
    Picture
        A matplotlib figure that shows itself once. `batchkit.plots.compare_data` has the numbers.

    Raises
    ------
    InputError
        There is no run, or something that is none.

    Examples
    --------
    >>> import batchkit as bk                                                  # doctest: +SKIP
    >>> bk.compare(serial=first_run, ours=second_run)                          # doctest: +SKIP
    """
    every = {f"run {number}": run for number, run in enumerate(runs, 1)} | named
    for name, run in every.items():
        if not isinstance(run, Run):
            raise InputError(f"compare: {name} is {_kind_of(run)}, not a run such as bk.last_run().")
    if not every:
        raise InputError("compare needs at least one run, for example bk.compare(serial=first, ours=second).")
    from batchkit import plots

    return plots.compare(every)


def _kind_of(given: object) -> str:
    return "None" if given is None else f"a {type(given).__name__}"


Run.draw_with(draw)
