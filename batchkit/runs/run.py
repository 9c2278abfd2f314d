"""Runs: planned, carried out, waited for, stopped, and tried again."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from batchkit import columns
from batchkit._engine import bridge
from batchkit._engine.execute import Execution
from batchkit._engine.memory import Memory
from batchkit._engine.plan import Plan
from batchkit._logic.pricing import Budget
from batchkit._logic.progress import Snapshot
from batchkit.errors import BatchkitWarning, ConfigError, Interrupted, RowFailed
from batchkit.providers import checks, resolve
from batchkit.routes import compile_route
from batchkit.runs.record import Record, code_of_nobody
from batchkit.runs.terms import Asked

if TYPE_CHECKING:
    import concurrent.futures

    from batchkit._engine.journal import Journal
    from batchkit.routes import Compiled

__all__ = ["Run", "View", "ViewMaker", "carry_out", "last_run", "open_journal", "planned"]

_GRACE = 2.0
"""Seconds that answers in flight get to arrive after an interrupt."""


class View(Protocol):
    """Draws a run as it goes on. Called in the thread that waits, never in the engine's."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw where the run stands."""

    def close(self, run: Run) -> None:
        """Draw how it ended."""


ViewMaker: TypeAlias = Callable[[str], View]
"""Makes a view with a title."""


class Run(Record):
    """One run: readable at any moment, while it goes on and after it ended, however it ended.

    Frames are made when they are asked for, and show the state of that moment.
    """

    def __init__(
        self, asked: Asked, units: columns.Units, compiled: Compiled, plan: Plan, earlier: Record | None = None
    ) -> None:
        super().__init__(asked, units, compiled, plan, earlier)
        self._view: ViewMaker | None = None
        self.new_journal: Path | None = None
        """Where this run began a journal; None where there was one, or none is kept."""
        self._execution: Execution | None = None
        self._future: concurrent.futures.Future[None] | None = None

    def retry(
        self,
        *,
        route: Any = None,
        delay: float = 0.0,
        max_concurrency: int | None = None,
        max_output_tokens: int | None = None,
    ) -> pd.DataFrame:
        """Ask again about the rows that failed or were not finished, and return the completed frame.

        Rows that have their answer keep it; nothing is asked about them.

        Parameters
        ----------
        route : provider, string spec or route, optional
            Who is asked this time. Default: the same as before. Conditions see the whole frame.
        delay : float
            Seconds to wait before the first request.
        max_concurrency : int, optional
            Requests in flight at once, at each provider, if that is less than its own.
        max_output_tokens : int, optional
            Another output cap, for rows that were ``truncated``.

        Returns
        -------
        DataFrame
            As the verb would have returned it. The new run is `last_run`, and shows all rows, too.

        Raises
        ------
        ConfigError
            The run still goes on, or a value cannot be.

        Examples
        --------
        >>> import pandas as pd, batchkit as bk
        >>> moody = bk.FunctionProvider(lambda text: None, name="moody")
        >>> df = pd.DataFrame({"text": ["I was charged twice"]})
        >>> out = df.llm.classify("text", ["billing", "other"], route=moody, progress=False)
        >>> calm = bk.FunctionProvider(lambda text: "billing", name="calm")
        >>> bk.last_run().retry(route=calm)["label"].tolist()
        ['billing']
        """
        if self._ledger.ended is None:
            raise ConfigError("this run still goes on: cancel it, or wait for it, before its rows are asked again.")
        for name, value in (("max_concurrency", max_concurrency), ("max_output_tokens", max_output_tokens)):
            if value is not None:
                checks.whole("retry", name, value, 1)
        time.sleep(delay)
        asked = self._asked if route is None else replace(self._asked, route=route)
        status = self._rows()["status"]
        only = np.asarray((status == "failed") | (status == "pending"))
        adjust = Adjustment(only, max_concurrency, max_output_tokens, self)
        return carry_out(asked, self._view, adjust).frame

    def cancel(self) -> None:
        """Send nothing new. Answers in flight get 2 s to arrive; the other rows end as ``cancelled``.

        May be called from any thread; the verb that waits for this run returns its frame.
        """
        self._halt("cancelled", _GRACE)

    # ---- inside -------------------------------------------------------------------------------

    def _start(self, journal: Journal | None) -> concurrent.futures.Future[None]:
        terms = self._asked.terms
        self._execution = Execution(
            self._plan,
            self._ledger,
            rng=random.Random(),
            raise_on_error=terms.on_error == "raise",
            memory=None if journal is None else Memory(journal, self._plan, recall=not terms.refresh),
            budget=None if terms.max_cost is None else Budget(terms.max_cost),
            max_seconds=terms.max_seconds,
        )
        self._future = bridge.submit(self._execution.run())
        return self._future

    def _halt(self, why: str, grace: float | None) -> None:
        if self._execution is not None and self._future is not None and not self._future.done():
            bridge.call(self._execution.halt, why, grace)


_latest: Run | None = None
_latest_lock = threading.Lock()


def last_run() -> Run | None:
    """Return the run that started last in this process, however it ended; None before the first.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.last_run() is None or bk.last_run().frame is not None
    True
    """
    return _latest


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """How a run differs from what was asked, because it goes on from an earlier one."""

    only: npt.NDArray[np.bool_]
    """One per row: whether it is asked about."""
    max_concurrency: int | None
    max_output_tokens: int | None
    earlier: Record | None


def carry_out(asked: Asked, view: ViewMaker | None, adjust: Adjustment | None = None) -> Run:
    """Plan a run, carry it out and wait for it.

    Raises
    ------
    ConfigError, InputError
        Before anything is sent.
    Interrupted
        After the stop button or Ctrl-C; what is done stands in `last_run`.
    RowFailed
        With ``on_error="raise"``, at the first row that fails.
    """
    compiled = compile_route(asked.route, asked.table, resolve)
    needs_home = any(provider.needs_home_loop for provider in compiled.providers)
    shown = view(asked.output.name) if view is not None and asked.progress else None
    with bridge.home_loop(needs_home) as home:
        run = planned(asked, compiled, home, adjust)
        run._view = view
        _check_budget(run)
        with open_journal(asked.terms.journal) as journal:
            run.new_journal = journal.path if journal is not None and journal.is_new else None
            future = run._start(journal)
            _announce(run)
            _wait(run, future, shown, home)
    if shown is not None:
        shown.close(run)
    else:
        _warn_of_stopped(run)
    if asked.terms.on_error == "raise" and run._ledger.first_failed is not None:
        raise RowFailed(f"{run._first_failure()}. Finished rows are kept: see .run.frame of this error.", run)
    return run


@contextlib.contextmanager
def open_journal(place: Path | None) -> Iterator[Journal | None]:
    """The journal at a place, None for none; what went wrong with it is told at the end."""
    if place is None:
        yield None
        return
    from batchkit._engine.journal import Journal

    journal = Journal.open(place)
    try:
        yield journal
    finally:
        journal.close()
        for news in journal.news():
            warnings.warn(news, BatchkitWarning, stacklevel=_levels_to_the_user())


def planned(
    asked: Asked, compiled: Compiled, home: Any, adjust: Adjustment | None = None, *, keyless: bool = False
) -> Run:
    """Decide everything about a run, and begin nothing; ``keyless`` if nothing ever will."""
    table = asked.table
    left_out = table.blank | (compiled.codes == code_of_nobody(compiled))
    providers = compiled.providers
    if adjust is not None:
        left_out |= ~adjust.only
        providers = tuple(
            provider._adjusted(adjust.max_concurrency, adjust.max_output_tokens) for provider in providers
        )
    if keyless:
        providers = tuple(provider._without_key() for provider in providers)
    units = columns.units(table.texts, left_out, compiled.codes, asked.terms.dedupe)
    first = units.first_row
    waiting = np.bincount(units.unit_of_row[units.unit_of_row >= 0], minlength=len(first))
    texts = table.texts[first].tolist()
    plan = Plan(
        asked.task,
        texts,
        compiled.codes[first].tolist(),
        waiting.tolist(),
        compiled.itineraries,
        tuple(provider._lane(asked.task, texts, home) for provider in providers),
    )
    return Run(asked, units, compiled, plan, None if adjust is None else adjust.earlier)


def _check_budget(run: Run) -> None:
    unknown = [lane.name for lane in run._plan.lanes if lane.price is None]
    if run._asked.terms.max_cost is not None and unknown:
        raise ConfigError(
            f"max_cost={run._asked.terms.max_cost!r} cannot be kept: the price of {', '.join(unknown)} is not known. "
            "Give it with price=(input, output) in USD per million tokens, or leave max_cost out."
        )


def _announce(run: Run) -> None:
    global _latest
    with _latest_lock:
        _latest = run


def _wait(run: Run, future: concurrent.futures.Future[None], view: View | None, home: Any) -> None:
    def look() -> None:
        if view is not None:
            view.show(run.snapshot)

    def end_early(grace: float) -> None:
        run._halt("interrupted", grace)
        bridge.wait(future, look, home)

    try:
        bridge.wait(future, look, home)
    except KeyboardInterrupt:
        try:
            end_early(_GRACE)
        except KeyboardInterrupt:
            run._halt("interrupted", 0.0)
        if view is not None:
            view.close(run)
        raise Interrupted(_interrupted(run.snapshot, run._asked.terms.journal is not None)) from None
    except BaseException:
        if not future.done():
            run._halt("cancelled", 0.0)  # nothing may go on that nobody waits for
        raise


def _interrupted(snapshot: Snapshot, kept: bool) -> str:
    return f"{snapshot.answered:,} of {snapshot.rows:,} rows are answered; bk.last_run().frame holds them" + (
        ", and running the cell again goes on from there." if kept else ", and nothing more is being sent."
    )


def _warn_of_stopped(run: Run) -> None:
    for lane in run.snapshot.lanes:
        if lane.stopped is not None:
            text = f"{lane.name} was stopped ({lane.stopped.kind}): {lane.stopped.message}"
            warnings.warn(text, BatchkitWarning, stacklevel=_levels_to_the_user())


def _levels_to_the_user() -> int:
    """How far up the calling cell or script is, as ``stacklevel`` counts."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("batchkit."):
        level, frame = level + 1, frame.f_back
    return level
