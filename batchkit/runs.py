"""Runs: a plan and what came of it, as frames, while it goes on and ever after."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from batchkit import columns
from batchkit._engine import bridge
from batchkit._engine.execute import Execution
from batchkit._engine.ledger import ANSWERED, FAILED, Ledger
from batchkit._engine.memory import Memory
from batchkit._engine.plan import Plan
from batchkit._logic.itinerary import NOBODY
from batchkit._logic.pricing import Budget, dollars
from batchkit._logic.progress import Snapshot
from batchkit._logic.stats import quantile
from batchkit._logic.tasks import Task
from batchkit.errors import BatchkitWarning, ConfigError, Interrupted, RowFailed
from batchkit.providers import resolve
from batchkit.records import ERROR_KINDS
from batchkit.routes import compile_route

if TYPE_CHECKING:
    import concurrent.futures

    from batchkit._engine.journal import Journal
    from batchkit.columns import Table, Units
    from batchkit.routes import Compiled

__all__ = ["Cost", "Output", "Run", "Terms", "View", "carry_out", "last_run"]

_GRACE = 2.0
"""Seconds that answers in flight get to arrive after an interrupt."""

_BOOKKEEPING = ("confidence", "provider", "error")
_DETAILS = (
    "message", "model", "confidence_source", "finish", "attempts", "seconds",
    "tokens_in", "tokens_out", "cost", "reused", "request_id",
)  # fmt: skip


class View(Protocol):
    """Draws a run as it goes on. Called in the thread that waits, never in the engine's."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw where the run stands."""

    def close(self, run: Run) -> None:
        """Draw how it ended."""


@dataclass(frozen=True, slots=True)
class Output:
    """Which columns a verb writes, and how its answers become one."""

    name: str
    """The answer's column; bookkeeping stands in ``<name>_...``."""
    details: bool | str
    """False: the answer alone; True: with confidence, provider and error; ``"full"``: all."""
    column: Callable[[Sequence[Any]], Any]
    """From one answer per row (None where there is none) to a column."""

    def names(self) -> list[str]:
        """All columns that will be written, the answer's first."""
        parts = () if self.details is False else _BOOKKEEPING + (_DETAILS if self.details == "full" else ())
        return [self.name, *(f"{self.name}_{part}" for part in parts)]


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a run is carried out.

    Attributes
    ----------
    journal : Path or None
        Where finished answers are kept.
    refresh : bool
        Ask again although answered before.
    dedupe : bool
        Ask equal texts once.
    on_error : str
        ``"continue"`` or ``"raise"``.
    max_cost, max_seconds : float or None
        Send nothing new once so many USD are spent, or so many seconds are over.
    """

    journal: Path | None = None
    refresh: bool = False
    dedupe: bool = True
    on_error: str = "continue"
    max_cost: float | None = None
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run used: tokens as the providers counted them, and USD as far as prices are known.

    Attributes
    ----------
    tokens_in, tokens_out : int
        All attempts together, answers that were refused or cut included.
    usd : float or None
        None: unknown. It is never guessed, and never 0 for want of a price.
    is_partial : bool
        Whether some requests have no known cost, so that the true one is higher than ``usd``.
    """

    tokens_in: int
    tokens_out: int
    usd: float | None = None
    is_partial: bool = False

    def __str__(self) -> str:
        price = "price unknown" if self.usd is None else dollars(self.usd) + (" and some unknown" * self.is_partial)
        return f"{self.tokens_in:,} tokens in, {self.tokens_out:,} out, {price}"


class Run:
    """One run: readable at any moment, while it goes on and after it ended, however it ended.

    Frames are made when they are asked for, and show the state of that moment.
    """

    def __init__(
        self, table: Table, units: Units, compiled: Compiled, plan: Plan, output: Output, terms: Terms
    ) -> None:
        self._table = table
        self._terms = terms
        self._units = units
        self._unrouted = compiled.codes == _code_of_nobody(compiled)
        self._names = [provider.name for provider in compiled.providers]
        self._plan = plan
        self._output = output
        self._ledger = Ledger(plan)
        self._execution: Execution | None = None
        self._future: concurrent.futures.Future[None] | None = None

    def __repr__(self) -> str:
        now = self.snapshot
        state = "running" if now.finished is None else now.finished
        return f"<Run {state}: {now.answered} of {now.rows} rows answered, {now.failed} failed>"

    def _repr_html_(self) -> str:
        return f"<div>{_escape(repr(self))}</div>" + self.summary.to_html(float_format=lambda number: f"{number:.3g}")

    @property
    def snapshot(self) -> Snapshot:
        """Counts of the moment."""
        return self._ledger.snapshot()

    @property
    def frame(self) -> pd.DataFrame:
        """The source frame with the output columns: finished rows, and the rest with their error kind."""
        rows = self._rows()
        values = {self._output.name: self._output.column(rows["answer"])}
        for name in self._output.names()[1:]:
            values[name] = rows[name.removeprefix(f"{self._output.name}_")]
        return columns.attach(self._table.frame, values)

    @property
    def rows(self) -> pd.DataFrame:
        """Everything known of each row, aligned with the source frame's index.

        ``status`` is one of ``answered``, ``reused``, ``blank``, ``unrouted``, ``failed``,
        ``pending``; tokens and attempts of a request that several equal rows share stand at
        the first of them.
        """
        rows = self._rows()
        answer = self._output.column(rows.pop("answer"))
        data = {"status": rows.pop("status"), self._output.name: answer, **rows}
        return pd.DataFrame(data, index=self._table.frame.index)

    @property
    def failed(self) -> pd.DataFrame:
        """The source rows that ended in an error, with provider, kind and message beside them."""
        rows = self._rows()
        failed = np.flatnonzero(rows["status"] == "failed")
        return columns.attach(
            self._table.frame.iloc[failed],
            {f"{self._output.name}_{part}": rows[part][failed] for part in ("provider", "error", "message")},
        )

    @property
    def requests(self) -> pd.DataFrame:
        """One row per attempt, in the order in which they ended.

        ``row`` is the position of the (first) row asked about; ``started`` and ``ended`` are
        seconds since the run began; ``cost`` is in USD, NaN where it is unknown.
        """
        log = self._ledger.attempts
        count = len(log)
        lanes = np.array(log.lane[:count], dtype=np.int64)
        kinds = np.array(log.kind[:count], dtype=np.int64)
        started = np.array(log.started[:count], dtype=float) - self._ledger.began
        ended = np.array(log.ended[:count], dtype=float) - self._ledger.began
        units = np.array(log.unit[:count], dtype=np.int64)
        return pd.DataFrame(
            {
                "row": self._units.first_row[units],
                "provider": columns.named(lanes, self._names),
                "started": started,
                "ended": ended,
                "seconds": ended - started,
                "error": columns.named(kinds, ERROR_KINDS),
                "status": pd.array([status or None for status in log.status[:count]], dtype="Int64"),
                "finish": columns.text_values(log.finish[:count]),
                "tokens_in": pd.array(log.tokens_in[:count], dtype="Int64"),
                "tokens_out": pd.array(log.tokens_out[:count], dtype="Int64"),
                "cost": np.array(log.cost[:count], dtype=float),
                "tokens_cached": pd.array(log.tokens_cached[:count], dtype="Int64"),
                "model": columns.text_values(log.model[:count]),
                "request_id": columns.text_values(log.request_id[:count]),
                "message": columns.text_values(log.message[:count]),
            }
        )

    @property
    def summary(self) -> pd.DataFrame:
        """One row per provider: rows, answers, failures, attempts, latency quantiles in seconds, tokens, cost.

        ``rows`` counts the rows it settled; latencies are of attempts that brought a reply;
        ``cost`` is in USD, NaN where it is unknown. ``stopped`` says why a provider was asked no
        more, ``adapted`` what its model refused and how it was asked instead.
        """
        snapshot = self.snapshot
        requests = self.requests
        table = []
        for lane in snapshot.lanes:
            own = requests[requests["provider"] == lane.name]
            good = own.loc[own["error"].isna(), "seconds"].to_numpy()
            table.append(
                {
                    "provider": lane.name,
                    "rows": lane.answered + lane.failed,
                    "answered": lane.answered,
                    "failed": lane.failed,
                    "attempts": lane.requests,
                    "p50": quantile(good, 0.50),
                    "p90": quantile(good, 0.90),
                    "p99": quantile(good, 0.99),
                    "tokens_in": lane.tokens_in,
                    "tokens_out": lane.tokens_out,
                    "cost": np.nan if lane.cost is None or lane.cost_is_partial else lane.cost,
                    "adapted": " ".join(lane.adapted) or None,
                    "stopped": None if lane.stopped is None else f"{lane.stopped.kind}: {lane.stopped.message}",
                }
            )
        summary = pd.DataFrame(table).set_index("provider")
        texts = {name: columns.text_values(list(summary[name])) for name in ("adapted", "stopped")}
        return summary.assign(**texts)

    @property
    def cost(self) -> Cost:
        """What all attempts used: tokens, and USD as far as it is known."""
        lanes = self.snapshot.lanes
        known = [lane.cost for lane in lanes if lane.cost is not None]
        partial = self.cost_is_partial
        usd = None if partial and not sum(known) else sum(known)
        return Cost(sum(lane.tokens_in for lane in lanes), sum(lane.tokens_out for lane in lanes), usd, partial)

    @property
    def cost_is_partial(self) -> bool:
        """Whether some requests have no known cost."""
        return any(lane.cost_is_partial for lane in self.snapshot.lanes)

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the last row, or to the latest attempt while the run goes on."""
        end = self._ledger.ended
        if end is None:
            log = self._ledger.attempts
            end = max(log.ended[: len(log)], default=self._ledger.began)
        return end - self._ledger.began

    def cancel(self) -> None:
        """Send nothing new. Answers in flight get 2 s to arrive; the other rows end as ``cancelled``.

        May be called from any thread; the verb that waits for this run returns its frame.
        """
        self._halt("cancelled", _GRACE)

    # ---- inside -------------------------------------------------------------------------------

    def _start(self, journal: Journal | None) -> concurrent.futures.Future[None]:
        terms = self._terms
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

    def _rows(self) -> dict[str, Any]:
        """By row: status, answer, and every detail."""
        ledger, units = self._ledger, self._units.unit_of_row
        count = len(ledger.state)
        state = _by_row(np.frombuffer(bytes(ledger.state), dtype=np.uint8), units, 0)
        over = ledger.ended is not None
        pending = (units >= 0) & (state != ANSWERED) & (state != FAILED)
        kinds = _by_row(np.array(ledger.kind, dtype=np.int64), units, -1)
        if over:
            kinds[pending] = ERROR_KINDS.index(_KIND_OF_PENDING.get(ledger.snapshot().finished or "", "cancelled"))
        messages: list[str | None] = [None] * count
        for unit, message in list(ledger.messages.items()):
            messages[unit] = message
        message_of_row = _by_row(_objects(messages), units, None)
        if over:
            message_of_row[pending] = _WHY_PENDING.get(ledger.snapshot().finished or "", "not answered")
        attempts = self._attempts_by_row()
        reused = (state == ANSWERED) & ~_by_row(self._was_asked(), units, False)
        attempts["reused"] = pd.array(reused, dtype="boolean")
        return {
            "status": columns.named(_statuses(units, state, self._table.blank, self._unrouted, reused), _STATUSES),
            "answer": _by_row(_objects(ledger.values), units, None),
            "confidence": _by_row(np.array(ledger.confidence, dtype=float), units, np.nan),
            "provider": columns.named(_by_row(np.array(ledger.lane, dtype=np.int64), units, -1), self._names),
            "error": columns.named(kinds, ERROR_KINDS),
            "message": columns.text_values(message_of_row),
            "confidence_source": columns.text_values(_by_row(_objects(ledger.source), units, None)),
            **attempts,
        }

    def _was_asked(self) -> Any:
        """By unit: whether any request was made for it."""
        asked = np.zeros(len(self._units.first_row), dtype=bool)
        log = self._ledger.attempts
        asked[np.array(log.unit[: len(log)], dtype=np.int64)] = True
        return asked

    def _attempts_by_row(self) -> dict[str, Any]:
        """What the requests for a row came to; at the first of the rows that share them."""
        log, units = self._ledger.attempts, self._units
        count, size = len(log), len(units.first_row)
        unit = np.array(log.unit[:count], dtype=np.int64)
        last = np.full(size, -1, dtype=np.int64)
        last[unit] = np.arange(count)
        first = np.full(size, -1, dtype=np.int64)
        first[unit[::-1]] = np.arange(count)[::-1]
        ended, started = np.array(log.ended[:count], dtype=float), np.array(log.started[:count], dtype=float)
        asked = last >= 0
        seconds = np.full(size, np.nan)
        seconds[asked] = ended[last[asked]] - started[first[asked]]
        owner = np.zeros(len(units.unit_of_row), dtype=bool)
        owner[units.first_row] = True
        rows = units.unit_of_row

        def text(values: Sequence[str | None]) -> Any:
            known = _objects([*values, None])
            return columns.text_values(_by_row(known[last], rows, None))

        def count_once(per_attempt: Sequence[int] | None) -> Any:
            weights = None if per_attempt is None else np.array(per_attempt[:count], dtype=float)
            totals = np.bincount(unit, weights=weights, minlength=size).astype(np.int64)
            by_row = np.where(owner, _by_row(totals, rows, 0), 0)
            return pd.array(np.where(rows >= 0, by_row, 0), dtype="Int64")

        paid = np.bincount(unit, weights=np.array(log.cost[:count], dtype=float), minlength=size)
        paid = np.where(self._was_asked(), paid, 0.0)
        return {
            "model": text(log.model[:count]),
            "finish": text(log.finish[:count]),
            "attempts": count_once(None),
            "seconds": _by_row(seconds, rows, np.nan),
            "tokens_in": count_once(log.tokens_in),
            "tokens_out": count_once(log.tokens_out),
            "cost": np.where(owner, _by_row(paid, rows, np.nan), 0.0 * _by_row(paid, rows, np.nan)),
            "reused": None,
            "request_id": text(log.request_id[:count]),
        }

    def _first_failure(self) -> str:
        unit = self._ledger.first_failed
        if unit is None:
            return "a row failed"
        row = int(self._units.first_row[unit])
        label: Hashable = self._table.frame.index[row]
        kind = ERROR_KINDS[self._ledger.kind[unit]]
        return f"row {row} (index {label!r}) ended in {kind}: {self._ledger.messages.get(unit)}"


_STATUSES = ["answered", "reused", "blank", "unrouted", "failed", "pending"]
_KIND_OF_PENDING: Mapping[str, str] = {"max_cost": "budget", "max_seconds": "budget"}
_WHY_PENDING: Mapping[str, str] = {
    "max_cost": "not asked: max_cost was reached",
    "max_seconds": "not asked: max_seconds were over",
    "cancelled": "not answered: the run was cancelled",
    "interrupted": "not answered: the run was interrupted",
    "raised": "not asked: an earlier row failed, and on_error='raise'",
}
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


def carry_out(table: Table, task: Task, route: Any, output: Output, terms: Terms, view: View | None) -> Run:
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
    compiled = compile_route(route, table, resolve)
    needs_home = any(provider.needs_home_loop for provider in compiled.providers)
    with bridge.home_loop(needs_home) as home:
        run = _planned(table, task, compiled, output, terms, home)
        _check_budget(run)
        with _open_journal(terms.journal) as journal:
            future = run._start(journal)
            _announce(run)
            _wait(run, future, view, home)
    if view is not None:
        view.close(run)
    else:
        _warn_of_stopped(run)
    if terms.on_error == "raise" and run._ledger.first_failed is not None:
        raise RowFailed(f"{run._first_failure()}. Finished rows are kept: see .run.frame of this error.", run)
    return run


@contextlib.contextmanager
def _open_journal(place: Path | None) -> Iterator[Journal | None]:
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


def _planned(table: Table, task: Task, compiled: Compiled, output: Output, terms: Terms, home: Any) -> Run:
    unrouted = compiled.codes == _code_of_nobody(compiled)
    units = columns.units(table.texts, table.blank | unrouted, compiled.codes, terms.dedupe)
    first = units.first_row
    waiting = np.bincount(units.unit_of_row[units.unit_of_row >= 0], minlength=len(first))
    texts = table.texts[first].tolist()
    plan = Plan(
        task,
        texts,
        compiled.codes[first].tolist(),
        waiting.tolist(),
        compiled.itineraries,
        tuple(provider._lane(task, texts, home) for provider in compiled.providers),
    )
    return Run(table, units, compiled, plan, output, terms)


def _check_budget(run: Run) -> None:
    unknown = [lane.name for lane in run._plan.lanes if lane.price is None]
    if run._terms.max_cost is not None and unknown:
        raise ConfigError(
            f"max_cost={run._terms.max_cost!r} cannot be kept: the price of {', '.join(unknown)} is not known. "
            "Give it with price=(input, output) in USD per million tokens, or leave max_cost out."
        )


def _code_of_nobody(compiled: Compiled) -> int:
    return next((code for code, node in enumerate(compiled.itineraries) if node == NOBODY), -1)


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
        raise Interrupted(_interrupted(run.snapshot, run._terms.journal is not None)) from None
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


def _statuses(units: Any, state: Any, blank: Any, unrouted: Any, reused: Any) -> Any:
    codes = np.full(len(units), _STATUSES.index("pending"))
    codes[state == ANSWERED] = _STATUSES.index("answered")
    codes[reused] = _STATUSES.index("reused")
    codes[state == FAILED] = _STATUSES.index("failed")
    codes[(units < 0) & unrouted] = _STATUSES.index("unrouted")
    codes[(units < 0) & blank] = _STATUSES.index("blank")
    return codes


def _by_row(by_unit: Any, units: Any, missing: Any) -> Any:
    """Spread one value per unit over the rows; rows that were not asked get ``missing``."""
    if not len(by_unit):
        dtype = object if missing is None else np.asarray(missing).dtype
        return np.full(len(units), missing, dtype=dtype)
    spread = by_unit[units]  # -1 takes the last; it is overwritten at once
    spread[units < 0] = missing
    return spread


def _objects(values: Sequence[Any]) -> Any:
    """An object array whose elements may be lists."""
    return np.fromiter(values, dtype=object, count=len(values))


def _escape(text: str) -> str:
    from html import escape

    return escape(text)
