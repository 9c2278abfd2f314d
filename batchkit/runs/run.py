"""Runs: planned, carried out, waited for, stopped, and tried again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import sys
import time
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from batchkit import columns, settings
from batchkit._engine import bridge
from batchkit._engine.execute import Execution
from batchkit._engine.memory import Memory
from batchkit._engine.plan import Plan
from batchkit._logic.pricing import Budget
from batchkit._logic.progress import LaneSnapshot, Snapshot
from batchkit.errors import BatchkitWarning, ConfigError, Interrupted, RowFailed
from batchkit.providers import checks, resolve
from batchkit.routes import compile_route
from batchkit.runs.record import Record, code_of_nobody
from batchkit.runs.terms import Asked
from batchkit.settings import strict

if TYPE_CHECKING:
    from batchkit._engine.journal import Journal
    from batchkit.routes import Compiled

__all__ = ["Adjustment", "Launch", "Run", "View", "ViewMaker", "carry_out", "last_run", "open_journal", "planned"]

_LONGEST_DELAY = 604_800
"""Seconds: a week."""
_GRACE = 2.0
"""Seconds that answers in flight get to arrive after an interrupt."""


class View(Protocol):
    """Draws a run as it goes on. Called in the thread that waits, never in the engine's."""

    def attach(self, run: Run) -> None:
        """Appear, in the thread that started the run."""

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
        self,
        asked: Asked,
        units: columns.Units,
        compiled: Compiled,
        plan: Plan,
        earlier: Record | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(asked, units, compiled, plan, earlier)
        self._view: ViewMaker | None = None
        self._news: list[str] = []
        """What the user should be told, each once."""
        self.new_journal: Path | None = None
        """Where the first answers of all are kept by this run; None where there were some before, or none is kept."""
        self._budget = budget
        self._execution: Execution | None = None
        self._future: concurrent.futures.Future[None] | None = None
        self._has_begun = False

    @strict
    def retry(
        self,
        *,
        route: Any = None,
        delay: float = 0.0,
        max_concurrency: int | None = None,
        max_output_tokens: int | None = None,
        max_cost: float | None = None,
        max_seconds: float | None = None,
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
        max_cost, max_seconds : float, optional
            USD that this run may cost, and seconds after which it sends nothing new. Default: the
            same as before, anew.

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
        if not checks.is_number(delay) or not 0 <= delay <= _LONGEST_DELAY:
            raise ConfigError(f"retry: delay={delay!r} must be a number of seconds, from 0 to {_LONGEST_DELAY:,}.")
        terms = replace(
            self._asked.terms,
            max_cost=settings.above_zero("max_cost", max_cost) or self._asked.terms.max_cost,
            max_seconds=settings.above_zero("max_seconds", max_seconds) or self._asked.terms.max_seconds,
        )
        asked = replace(self._asked, terms=terms, route=self._asked.route if route is None else route)
        status = self._rows("status")["status"]
        only = np.asarray((status == "failed") | (status == "pending")) & self._concerned()
        adjust = Adjustment(only, self, max_concurrency, max_output_tokens)
        return carry_out(asked, self._view, adjust, delay=delay).frame

    @strict
    def plot(self, *, title: str | None = None) -> Any:
        """Draw the run on one page: timeline, rows per second, requests in flight, latencies, outcomes.

        Returns a matplotlib figure that shows itself once; so do the others, unless they are
        given ``ax=`` to draw into, which they then return.
        """
        return self._drawn("dashboard", title=title)

    @strict
    def plot_timeline(self, *, title: str | None = None, ax: Any = None) -> Any:
        """Draw every attempt as a bar in its provider's slot, coloured by how it ended."""
        return self._drawn("timeline", title=title, ax=ax)

    @strict
    def plot_latency(self, *, title: str | None = None, ax: Any = None) -> Any:
        """Draw how the seconds from request to reply are distributed at each provider, with p50, p90 and p99."""
        return self._drawn("latency", title=title, ax=ax)

    @strict
    def plot_throughput(self, *, title: str | None = None, ax: Any = None) -> Any:
        """Draw rows per second and requests in flight over time, against the limits."""
        return self._drawn("throughput", title=title, ax=ax)

    @classmethod
    def draw_with(cls, draw: Callable[[str, Run, Mapping[str, Any]], Any]) -> None:
        """Say who draws: pictures stand above runs, so they are handed down."""
        cls._draw = staticmethod(draw)

    @property
    def spent(self) -> float:
        """USD that ``max_cost`` counts: where a reply's cost is unknown, the most it can have been. 0 without one."""
        return 0.0 if self._budget is None else self._budget.spent

    def cancel(self) -> None:
        """Send nothing new. Answers in flight get 2 s to arrive; the other rows end as ``cancelled``.

        May be called from any thread; the verb that waits for this run returns its frame.
        """
        self._halt("cancelled", _GRACE)

    def tell_news(self) -> None:
        """Warn of what the user should know, each thing once."""
        news = self._news.copy()
        self._news.clear()  # and not another list: the journal adds to this one
        for text in news:
            warnings.warn(text, BatchkitWarning, stacklevel=_levels_to_the_user())

    def raise_if_asked_to(self) -> None:
        """Raise `RowFailed` if a row failed and the verb was asked to raise then."""
        if self._asked.terms.on_error == "raise" and self._ledger.first_failed is not None:
            raise RowFailed(f"{self._first_failure()}. Finished rows are kept: see .run.frame of this error.", self)

    # ---- inside -------------------------------------------------------------------------------

    _draw: ClassVar[Callable[[str, Run, Mapping[str, Any]], Any]]

    def _drawn(self, kind: str, **settings: Any) -> Any:
        given = {name: value for name, value in settings.items() if value is not None}
        return type(self)._draw(kind, self, given)

    def _start(self, journal: Journal | None) -> concurrent.futures.Future[None]:
        terms = self._asked.terms
        self._execution = Execution(
            self._plan,
            self._ledger,
            rng=random.Random(),
            raise_on_error=terms.on_error == "raise",
            memory=None if journal is None else Memory(journal, self._plan, recall=not terms.refresh),
            budget=self._budget,
            max_seconds=terms.max_seconds,
        )
        self._ledger.announce(self._units.first_row)
        # There before anything begins: whoever is interrupted in the next line can still stop it and wait for it.
        self._future = concurrent.futures.Future()
        bridge.call(self._begin, self._execution, self._future)
        return self._future

    def _begin(self, execution: Execution, future: concurrent.futures.Future[None]) -> None:
        """Begin, unless it has begun. On the engine's loop."""
        if not self._has_begun:
            self._has_begun = True
            bridge.fulfil(execution.run(), future)

    def _halt(self, why: str, grace: float | None) -> None:
        if self._execution is not None and self._future is not None and not self._future.done():
            bridge.call(self._begin, self._execution, self._future)  # an interrupt may have kept it from beginning
            bridge.call(self._execution.halt, why, grace)


_latest: Run | None = None


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
    earlier: Record | None
    max_concurrency: int | None = None
    max_output_tokens: int | None = None
    spent: float = 0.0
    """USD of ``max_cost`` that are gone already."""


class Launch:
    """A run about to be carried out, with all that has to be put away afterwards.

    Parameters
    ----------
    asked : Asked
    compiled : Compiled
        Its route, worked out.
    view : ViewMaker or None
    home : event loop or None
        The caller's own, for functions that must run there.
    adjust : Adjustment or None

    Raises
    ------
    ConfigError, InputError
        Before anything is sent.
    """

    def __init__(
        self, asked: Asked, compiled: Compiled, view: ViewMaker | None, home: Any, adjust: Adjustment | None = None
    ) -> None:
        self.run = planned(asked, compiled, home, adjust)
        self.run._view = view
        _check_budget(self.run)
        self._view = None if view is None else view(asked.output.name)
        self._putting_away = contextlib.ExitStack()
        self._journal = self._putting_away.enter_context(open_journal(asked.terms.journal, self.run._news))
        if self._journal is not None and self._journal.is_new and self.keeps_answers:
            self.run.new_journal = self._journal.path
            self._journal.is_new = False

    @property
    def keeps_answers(self) -> bool:
        """Whether a later run will find what this one's providers answer."""
        is_kept = any(lane.fingerprint is not None for lane in self.run._plan.lanes)
        return is_kept and self._journal is not None and self._journal.problem is None

    def begin(self) -> concurrent.futures.Future[None]:
        """Send the first requests."""
        bridge.refuse_inside()
        _announce(self.run)
        future = self.run._start(self._journal)
        self._draw(lambda view: view.attach(self.run))
        return future

    def look(self) -> None:
        """Draw where the run stands."""
        self._draw(lambda view: view.show(self.run.snapshot))

    def end(self) -> None:
        """Put everything away, and draw how it ended. Not on a loop's thread: it waits for the journal."""
        self._putting_away.close()
        if self._view is None:
            self.run._news += [_why_stopped(lane) for lane in self.run.snapshot.lanes if lane.stopped is not None]
            return
        self._draw(lambda view: view.close(self.run))

    def _draw(self, act: Callable[[View], None]) -> None:
        """Let the view act. One that fails is dropped: it never harms a run."""
        if self._view is None:
            return
        try:
            act(self._view)
        except Exception as error:  # noqa: BLE001
            self._view = None
            self.run._news.append(f"the progress view failed and was dropped: {type(error).__name__}: {error}")


def carry_out(
    asked: Asked,
    view: ViewMaker | None,
    adjust: Adjustment | None = None,
    *,
    delay: float = 0.0,
    compiled: Compiled | None = None,
) -> Run:
    """Plan a run, carry it out after ``delay`` seconds and wait for it; ``compiled`` is its route if worked out before.

    Raises
    ------
    ConfigError, InputError
        Before anything is sent.
    Interrupted
        After the stop button or Ctrl-C; what is done stands in `last_run`.
    RowFailed
        With ``on_error="raise"``, at the first row that fails.
    """
    if compiled is None:
        compiled = compile_route(asked.route, asked.table, resolve)
    with bridge.home_loop(any(provider.needs_home_loop for provider in compiled.providers)) as home:
        launched = Launch(asked, compiled, view, home, adjust)
        try:
            launched.run.tell_news()
            _wait(launched, home, delay)
        finally:
            launched.end()
            launched.run.tell_news()
    launched.run.raise_if_asked_to()
    return launched.run


@contextlib.contextmanager
def open_journal(place: Path | None, news: list[str]) -> Iterator[Journal | None]:
    """The journal at a place, None for none; what went wrong with it is added to ``news`` at the end."""
    if place is None:
        yield None
        return
    from batchkit._engine.journal import Journal

    journal = Journal.open(place)
    try:
        yield journal
    finally:
        journal.close()
        news += journal.news()


def planned(
    asked: Asked, compiled: Compiled, home: Any, adjust: Adjustment | None = None, *, keyless: bool = False
) -> Run:
    """Decide everything about a run, and begin nothing; ``keyless`` if nothing ever will."""
    table = asked.table
    left_out = table.blank | (compiled.codes == code_of_nobody(compiled))
    providers = compiled.providers
    if adjust is not None:
        if adjust.max_output_tokens is not None and not any(provider.takes_cap for provider in providers):
            raise ConfigError(
                f"retry: max_output_tokens={adjust.max_output_tokens!r} caps no reply here: "
                f"{', '.join(provider.name for provider in providers)} counts no tokens. Leave it out."
            )
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
        array("i", compiled.codes[first].astype(np.int32).tobytes()),
        array("i", waiting.astype(np.int32).tobytes()),
        compiled.itineraries,
        tuple(provider._lane(asked.task, texts, home) for provider in providers),
        {} if asked.terms.dedupe else columns.samples(table.texts, units),
    )
    budget = None if asked.terms.max_cost is None else Budget(asked.terms.max_cost, adjust.spent if adjust else 0.0)
    run = Run(asked, units, compiled, plan, None if adjust is None else adjust.earlier, budget)
    run._news += compiled.news
    return run


def _check_budget(run: Run) -> None:
    unknown = [lane.name for lane in run._plan.lanes if lane.price is None]
    if run._asked.terms.max_cost is not None and unknown:
        raise ConfigError(
            f"max_cost={run._asked.terms.max_cost!r} cannot be kept: the price of {', '.join(unknown)} is not known. "
            "Give a vendor's with price=(input, output) in USD per million tokens, or leave max_cost out."
        )


def _announce(run: Run) -> None:
    global _latest
    _latest = run


def _wait(launched: Launch, home: Any, delay: float) -> None:
    run, look = launched.run, launched.look
    try:
        time.sleep(delay)
        bridge.wait(launched.begin(), look, home)
    except KeyboardInterrupt:
        try:
            run._halt("interrupted", _GRACE)
            if run._future is not None:
                bridge.wait(run._future, look, home)
        except KeyboardInterrupt:
            run._halt("interrupted", 0.0)
        raise Interrupted(_interrupted(run, launched.keeps_answers)) from None
    except BaseException:
        if run._future is not None and not run._future.done():
            run._halt("cancelled", 0.0)  # nothing may go on that nobody waits for
        raise


def _interrupted(run: Run, kept: bool) -> str:
    answered, rows = run.snapshot.answered, run.snapshot.rows
    if run._earlier is not None:  # the frame holds its answers, too
        status = pd.Series(run._rows("status")["status"])
        answered = int(status.isin(["answered", "reused"]).sum())
        rows = int((~status.isin(["blank", "unrouted"])).sum())
    return f"{answered:,} of {rows:,} rows are answered; bk.last_run().frame holds them" + (
        ", and running the cell again goes on from there." if kept else ", and nothing more is being sent."
    )


def _why_stopped(lane: LaneSnapshot) -> str:
    return f"{lane.name} was stopped ({lane.stopped.kind}): {lane.stopped.message}" if lane.stopped is not None else ""


def _levels_to_the_user() -> int:
    """How far up the calling cell or script is, as ``stacklevel`` counts."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("batchkit."):
        level, frame = level + 1, frame.f_back
    return level
