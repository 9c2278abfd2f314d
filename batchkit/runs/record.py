"""A plan and what came of it, as frames, at any moment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd

from batchkit import columns
from batchkit._engine.ledger import ANSWERED, FAILED, Ledger
from batchkit._logic.itinerary import NOBODY
from batchkit._logic.progress import Snapshot
from batchkit._logic.stats import quantile
from batchkit.records import ERROR_KINDS
from batchkit.runs.terms import Asked, Cost

if TYPE_CHECKING:
    from batchkit._engine.plan import LaneSpec, Plan
    from batchkit.columns import Units
    from batchkit.routes import Compiled

__all__ = ["Record", "code_of_nobody"]


class Record:
    """Shows a run's ledger as frames, which are made when they are asked for."""

    def __init__(
        self, asked: Asked, units: Units, compiled: Compiled, plan: Plan, earlier: Record | None = None
    ) -> None:
        self._asked = asked
        self._table = asked.table
        self._output = asked.output
        self._units = units
        self._unrouted = compiled.codes == code_of_nobody(compiled)
        self._names = [provider.name for provider in compiled.providers]
        self._plan = plan
        self._ledger = Ledger(plan)
        self._earlier = earlier
        """Where the rows stand that this one did not ask about."""

    def __repr__(self) -> str:
        return f"<Run {self.snapshot}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run cannot be pickled or copied. Keep its frames: .frame, .rows, .requests, .summary.")

    def _repr_html_(self) -> str:
        return f"<div>{escape(repr(self))}</div>" + self.summary.to_html(float_format=lambda number: f"{number:.3g}")

    @property
    def lanes(self) -> tuple[LaneSpec, ...]:
        """The providers of the run, with the limits they were asked under."""
        return self._plan.lanes

    @property
    def number(self) -> int | None:
        """Which run of this process it is, as `batchkit.observe` tells; None before it starts."""
        return self._ledger.number

    @property
    def output_name(self) -> str:
        """Name of the answer's column."""
        return self._output.name

    @property
    def blank(self) -> int:
        """Rows that hold nothing to ask about."""
        return int(self._table.blank.sum())

    @property
    def unrouted(self) -> int:
        """Rows that the route sends to nobody, blank ones left out."""
        return int((self._unrouted & ~self._table.blank).sum())

    @property
    def snapshot(self) -> Snapshot:
        """Counts of the moment."""
        return self._ledger.snapshot()

    @property
    def frame(self) -> pd.DataFrame:
        """The source frame with the output columns: finished rows, and the rest with their error kind."""
        names = self._output.names()[1:]
        parts = [name.removeprefix(f"{self._output.name}_") for name in names]
        rows = self._rows("answer", *parts)
        values = {self._output.name: self._output.column(rows["answer"])}
        values.update(zip(names, (rows[part] for part in parts), strict=True))
        return columns.attach(self._table.frame, values, self._output.earlier(self._table.frame))

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
        parts = ("provider", "error", "message")
        rows = self._rows("status", *parts)
        failed = np.flatnonzero(rows["status"] == "failed")
        frame = self._table.frame.iloc[failed]
        new = {f"{self._output.name}_{part}": rows[part][failed] for part in parts}
        return columns.attach(frame, new, self._output.earlier(frame))

    @property
    def requests(self) -> pd.DataFrame:
        """One row per attempt, in the order in which they ended.

        ``row`` is the position of the (first) row asked about; ``started`` and ``ended`` are
        seconds since the run began; ``cost`` is in USD, NaN where it is unknown.
        """
        log = self._ledger.attempts
        count = len(log)
        started = np.array(log.started[:count], dtype=float) - self._ledger.began
        ended = np.array(log.ended[:count], dtype=float) - self._ledger.began
        return pd.DataFrame(
            {
                "row": self._units.first_row[np.array(log.unit[:count], dtype=np.int64)],
                "provider": columns.named(np.array(log.lane[:count], dtype=np.int16), self._names),
                "started": started,
                "ended": ended,
                "seconds": ended - started,
                "error": columns.named(np.array(log.kind[:count], dtype=np.int8), ERROR_KINDS),
                "status": _whole(log.status[:count], missing=0),
                "finish": columns.text_values(log.finish[:count]),
                "tokens_in": _whole(log.tokens_in[:count]),
                "tokens_out": _whole(log.tokens_out[:count]),
                "cost": np.array(log.cost[:count], dtype=float),
                "tokens_cached": _whole(log.tokens_cached[:count]),
                "model": columns.text_values(log.model[:count]),
                "request_id": columns.text_values(log.request_id[:count]),
                "message": columns.text_values(log.message[:count]),
            },
            copy=False,  # they are nobody else's
        )

    @property
    def summary(self) -> pd.DataFrame:
        """One row per provider: rows, answers, failures, attempts, latency quantiles in seconds, tokens, cost, waits.

        ``rows`` counts the rows it settled; latencies are of attempts that brought a reply;
        ``cost`` is in USD, NaN where it is unknown; ``waits`` are the seconds for which limits let
        no request go though rows waited. ``stopped`` says why a provider was asked no
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
                    "waits": lane.held,
                    "adapted": " ".join(lane.adapted) or None,
                    "stopped": None if lane.stopped is None else f"{lane.stopped.kind}: {lane.stopped.message}",
                }
            )
        summary = pd.DataFrame(table).set_index("provider")
        texts = {name: columns.text_values(list(summary[name])) for name in ("adapted", "stopped")}
        return summary.assign(**texts)

    @property
    def cost(self) -> Cost:
        """What all attempts of this run used: tokens, and USD as far as it is known.

        Rows that a pilot, or the run that this one retries, had answered keep its numbers in `rows`.
        """
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

    def settled(self, start: int = 0) -> list[tuple[int, Hashable, Any, str | None]]:
        """Position, label, answer and error of each row that is done, in the order in which they were.

        Parameters
        ----------
        start : int
            Leave out so many, which are known already.
        """
        ledger = self._ledger
        rows_of = self._rows_of_units
        done = [(row, unit) for unit in ledger.order[: len(ledger.order)] for row in rows_of[unit]]
        if ledger.ended is not None:
            pending = [unit for unit, state in enumerate(ledger.state) if state not in (ANSWERED, FAILED)]
            done += [(row, unit) for unit in pending for row in rows_of[unit]]
        return [self._settled_row(row, unit) for row, unit in done[start:]]

    def _settled_row(self, row: int, unit: int) -> tuple[int, Hashable, Any, str | None]:
        ledger = self._ledger
        kind = ERROR_KINDS[ledger.kind[unit]] if ledger.kind[unit] >= 0 else None
        if ledger.state[unit] not in (ANSWERED, FAILED):
            kind = _KIND_OF_PENDING.get(ledger.snapshot().finished or "", "cancelled")
        return row, self._table.frame.index[row], ledger.values[unit], kind

    @functools.cached_property
    def _rows_of_units(self) -> list[list[int]]:
        rows: list[list[int]] = [[] for _ in self._units.first_row]
        for row, unit in enumerate(self._units.unit_of_row):
            if unit >= 0:
                rows[unit].append(row)
        return rows

    def _concerned(self) -> Any:
        """By row: whether this run, or the one it goes on from, asks about it; a pilot leaves most out."""
        own = self._units.unit_of_row >= 0
        return own if self._earlier is None else own | self._earlier._concerned()

    def _rows(self, *names: str) -> dict[str, Any]:
        """By row: what is named, or status, answer and every detail; of this run or else of the one it goes on from."""
        columns_of = self._own_rows()
        rows = {name: columns_of[name]() for name in names or columns_of}
        if self._earlier is None:
            return rows
        own = self._units.unit_of_row >= 0
        before = self._earlier._rows(*names)
        return {name: columns.merged(own, values, before[name]) for name, values in rows.items()}

    def _own_rows(self) -> dict[str, Callable[[], Any]]:
        """How to make each column: most are not asked for, and a million rows are much."""
        ledger, units = self._ledger, self._units.unit_of_row
        count = len(ledger.state)
        state = _by_row(np.frombuffer(bytes(ledger.state), dtype=np.uint8), units, 0)
        over = ledger.ended is not None
        pending = (units >= 0) & (state != ANSWERED) & (state != FAILED)

        def error() -> Any:
            kinds = _by_row(np.array(ledger.kind, dtype=np.int8), units, -1)
            if over:
                kinds[pending] = ERROR_KINDS.index(_KIND_OF_PENDING.get(ledger.snapshot().finished or "", "cancelled"))
            return columns.named(kinds, ERROR_KINDS)

        def message() -> Any:
            messages: list[str | None] = [None] * count
            for unit, text in list(ledger.messages.items()):
                messages[unit] = text
            message_of_row = _by_row(_objects(messages), units, None)
            if over:
                why = _WHY_PENDING.get(ledger.snapshot().finished or "", "it ended")
                asked = _by_row(self._was_asked(), units, False)
                message_of_row[pending & ~asked] = f"not asked: {why}"
                message_of_row[pending & asked] = f"asked, but not answered: {why}"
            return columns.text_values(message_of_row)

        def reused() -> Any:
            return (state == ANSWERED) & ~_by_row(self._was_asked(), units, False)

        def status() -> Any:
            codes = _statuses(units, state, self._table.blank, self._unrouted, reused())
            return columns.named(codes, _STATUSES)

        return {
            "status": status,
            "answer": lambda: _by_row(_objects(ledger.values), units, None),
            "confidence": lambda: _by_row(np.array(ledger.confidence, dtype=float), units, np.nan),
            "provider": lambda: columns.named(_by_row(np.array(ledger.lane, dtype=np.int16), units, -1), self._names),
            "error": error,
            "message": message,
            "confidence_source": lambda: columns.text_values(_by_row(_objects(ledger.source), units, None)),
            **self._attempts_by_row(),
            "reused": lambda: pd.array(reused(), dtype="boolean"),
        }

    def _was_asked(self) -> Any:
        """By unit: whether any request was made for it."""
        asked = np.zeros(len(self._units.first_row), dtype=bool)
        log = self._ledger.attempts
        asked[np.array(log.unit[: len(log)], dtype=np.int64)] = True
        return asked

    def _attempts_by_row(self) -> dict[str, Callable[[], Any]]:
        """How to make the columns of what the requests for a row came to; at the first of the rows that share them."""
        log, units = self._ledger.attempts, self._units
        count, size = len(log), len(units.first_row)
        rows = units.unit_of_row

        @functools.cache
        def unit() -> Any:
            return np.array(log.unit[:count], dtype=np.int64)

        @functools.cache
        def last() -> Any:
            last = np.full(size, -1, dtype=np.int64)
            last[unit()] = np.arange(count)
            return last

        @functools.cache
        def owner() -> Any:
            owner = np.zeros(len(rows), dtype=bool)
            owner[units.first_row] = True
            return owner

        def seconds() -> Any:
            first = np.full(size, -1, dtype=np.int64)
            first[unit()[::-1]] = np.arange(count)[::-1]
            ended, started = np.array(log.ended[:count], dtype=float), np.array(log.started[:count], dtype=float)
            asked = last() >= 0
            seconds = np.full(size, np.nan)
            seconds[asked] = ended[last()[asked]] - started[first[asked]]
            return _by_row(seconds, rows, np.nan)

        def text(values: Sequence[str | None]) -> Any:
            known = _objects([*values[:count], None])
            return columns.text_values(_by_row(known[last()], rows, None))

        def count_once(per_attempt: Sequence[int] | None) -> Any:
            weights = None if per_attempt is None else np.array(per_attempt[:count], dtype=float)
            totals = np.bincount(unit(), weights=weights, minlength=size).astype(np.int64)
            by_row = np.where(owner(), _by_row(totals, rows, 0), 0)
            return pd.array(np.where(rows >= 0, by_row, 0), dtype="Int64")

        def cost() -> Any:
            paid = np.bincount(unit(), weights=np.array(log.cost[:count], dtype=float), minlength=size)
            by_row = _by_row(np.where(self._was_asked(), paid, 0.0), rows, np.nan)
            return np.where(owner(), by_row, 0.0 * by_row)

        return {
            "model": lambda: text(log.model),
            "finish": lambda: text(log.finish),
            "attempts": lambda: count_once(None),
            "seconds": seconds,
            "tokens_in": lambda: count_once(log.tokens_in),
            "tokens_out": lambda: count_once(log.tokens_out),
            "cost": cost,
            "reused": lambda: None,
            "request_id": lambda: text(log.request_id),
        }

    def _first_failure(self) -> str:
        unit = self._ledger.first_failed
        if unit is None:
            return "a row failed"
        row = int(self._units.first_row[unit])
        label: Any = self._table.frame.index[row]
        label = label.item() if isinstance(label, np.generic) else label
        kind = ERROR_KINDS[self._ledger.kind[unit]]
        return f"row {row} (index {label!r}) ended in {kind}: {self._ledger.messages.get(unit)}"


_STATUSES = ["answered", "reused", "blank", "unrouted", "failed", "pending"]
_KIND_OF_PENDING: Mapping[str, str] = {"max_cost": "budget", "max_seconds": "budget"}
_WHY_PENDING: Mapping[str, str] = {
    "max_cost": "max_cost was reached",
    "max_seconds": "max_seconds were over",
    "cancelled": "the run was cancelled",
    "interrupted": "the run was interrupted",
    "raised": "an earlier row failed, and on_error='raise'",
}


def _whole(numbers: Sequence[int], missing: int | None = None) -> Any:
    """Whole numbers as a column, one of them standing for those that are missing."""
    values = np.array(numbers, dtype=np.int64)
    return pd.arrays.IntegerArray(values, np.zeros(len(values), dtype=bool) if missing is None else values == missing)


def code_of_nobody(compiled: Compiled) -> int:
    """The itinerary code of rows that nobody is asked about; -1 where there are none."""
    return next((code for code, node in enumerate(compiled.itineraries) if node == NOBODY), -1)


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
