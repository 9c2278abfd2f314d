"""`tune`: a sample asked at several settings, one after the other, to see which one to use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from batchkit import verbs
from batchkit._logic.advising import AnyReply, Measured, recommend
from batchkit._logic.pricing import dollars
from batchkit._logic.stats import most_at_once, quantile
from batchkit._logic.tasks import Classify
from batchkit.errors import ConfigError, InputError, Interrupted
from batchkit.providers import Embedded, Provider, checks, resolve
from batchkit.runs import Asked, Run, carry_out
from batchkit.settings import strict
from batchkit.widgets import choose

if TYPE_CHECKING:
    from batchkit.plots import Picture
    from batchkit.runs import View

__all__ = ["Tuning", "tune"]

_QUESTION = {"positive": "the text is rather positive", "negative": "the text is rather negative"}
"""What is asked where no labels are given."""
_OVERLOADED = (498, 503, 529)
_WHY_CUT = {"max_cost": "max_cost was reached", "cancelled": "it was cancelled"}


@strict
def tune(
    provider: Any,
    sample: Any,
    labels: Any = None,
    concurrency: int | Iterable[int] = (1, 5, 10, 20),
    *,
    column: Hashable | Sequence[Hashable] | None = None,
    batches: Iterable[tuple[int, float]] | None = None,
    instructions: str | None = None,
    examples: Any = None,
    max_cost: float | None = None,
    progress: bool | str | None = None,
) -> Tuning:
    """Ask a sample at several settings, one after the other, and say which one to use.

    Every setting asks about every row anew: answers are neither looked up in the journal nor kept
    there, and equal rows are asked each by itself. So it makes at least rows times settings
    requests, 240 for 60 rows at the four settings usual here, and costs as much; failed attempts
    that are tried again come on top. A sample of three rows for each request in flight at the
    highest setting tells enough.

    Parameters
    ----------
    provider : provider or string spec
        Its ``max_concurrency`` is what is tuned and does not hold here; its other limits
        (``rpm``, ``tpm``, ``timeout``, ``deadline``, ``max_retries``) do.
    sample : Series, list of text, or DataFrame
        The rows; of a DataFrame the ``column``. Blank ones are not asked.
    labels : list, dict, Enum or Literal, optional
        As for ``classify``: what is asked is what ``classify`` would ask. Without them the
        question is whether a text is rather "positive" or "negative", and any reply counts.
    concurrency : int or iterable of int
        How many requests may be in flight at once: a setting each, in this order. May be empty
        where there are ``batches``.
    column : label or list of labels, optional
        The column or columns of a DataFrame that hold the text.
    batches : iterable of (int, float), optional
        Pairs of ``max_batch_size`` and ``max_batch_time``: a setting each, after the others. All
        rows are then handed to a `RunnableBatch` at once, as single calls, and a call's latency
        includes its wait for the batch. As always with a `RunnableBatch`, a batch may leave while
        another runs. For `LangChain` and for `FunctionProvider` with ``batched=True``; other
        providers take one row a request, which no batch makes fewer.
    instructions : str, optional
        What the model should know about the task.
    examples : list of (text, label) or DataFrame, optional
        Answers to learn from.
    max_cost : float, optional
        USD for all settings together. A setting that it cuts short is left out, and so are those
        after it. The price must be known.
    progress : bool or "text", optional
        Whether to show progress, a line for each setting.

    Returns
    -------
    Tuning
        ``table``, ``recommended`` and the ``reason``, the ``runs``, and ``plot()``. The last
        setting's run is `last_run`. After a fault that hits every row (a wrong key, no such model)
        no other setting is tried, nor after Cancel.

    Raises
    ------
    ConfigError, InputError
        Before anything is sent: no rows, a concurrency that cannot be, a missing key.
    Interrupted
        After the stop button or Ctrl-C. Its ``tuning`` holds the settings measured by then: in
        the next cell that is ``sys.last_value.tuning``.

    Examples
    --------
    >>> import batchkit as bk
    >>> rules = bk.FunctionProvider(lambda text: "billing" if "charged" in text else "delivery", name="rules")
    >>> texts = ["I was charged twice", "Where is my parcel?"] * 10
    >>> tuning = bk.tune(rules, texts, ["billing", "delivery"], concurrency=(1, 4), progress=False)
    >>> tuning.table[["setting", "concurrency", "failures"]].values.tolist()
    [['serial', 1, 0], ['4 at once', 4, 0]]
    >>> list(tuning.recommended)
    ['max_concurrency']
    """
    provider = resolve(provider)
    if isinstance(provider, Embedded):
        raise ConfigError(
            f"tune: {provider.name} computes in this process, many rows at a time: there is nothing to tune."
        )
    frame, chosen = _read(sample, column)
    asked = verbs.classify(
        frame,
        chosen,
        _QUESTION if labels is None else labels,
        route=provider,
        instructions=instructions,
        examples=examples,
        overwrite=True,
        on_error="continue",
        max_cost=max_cost,
        dedupe=False,
        progress=progress,
        journal=False,
    )
    rows = int((~asked.table.blank).sum())
    if not rows:
        raise InputError("tune: the sample holds no text to ask about; give a few dozen rows.")
    if labels is None and isinstance(asked.task, Classify):
        asked = replace(asked, task=AnyReply(asked.task.labels, asked.task.instructions, asked.task.examples))
    settings = [*_plain(provider, concurrency), *_collecting(provider, batches, rows)]
    if not settings:
        raise ConfigError("tune: there is nothing to try; give concurrency=(1, 5, 10, 20), or batches=.")
    return _measure(asked, provider.name, settings, rows)


class Tuning:
    """What `tune` measured. Shown in a cell, it is the table, the recommendation and its reason.

    Attributes
    ----------
    table : DataFrame
        A row per setting: ``setting`` (its name), ``concurrency`` (requests in flight at most;
        with batches, calls waiting at once), ``batch_size`` and ``batch_time`` (missing without
        batches), ``seconds`` from start to end, ``rows_per_second`` (answered ones), ``failures``
        (rows without an answer), ``rate_limited`` and ``overloaded`` (attempts that were refused
        so), ``in_flight`` (the most requests at once that there were), ``p50``, ``p90`` and
        ``p99`` (seconds from request to reply), ``cost`` (USD, NaN where it is unknown).
    recommended : dict or None
        The keywords to use: ``{"max_concurrency": 10}`` for the provider, or ``max_batch_size`` and
        ``max_batch_time`` for a `RunnableBatch`. None if no setting answered anything.
    reason : str
        Why: of the settings that were refused nothing and failed on the fewest rows, the smallest
        that reaches 95 % of the highest pace.
    runs : tuple of Run
        A run per row of the table; ``bk.compare(*tuning.runs)`` draws them.
    """

    def __init__(
        self, provider: str, settings: Sequence[_Setting], runs: Sequence[Run], rows: int, cut: str | None
    ) -> None:
        self.runs = tuple(runs)
        self.table = _table(settings, runs, rows)
        measured = [
            _measured(setting, line, rows) for setting, line in zip(settings, self.table.itertuples(), strict=False)
        ]
        place, self.reason = recommend(measured)
        self.recommended = None if place is None else dict(settings[place].keywords)
        self._chosen = None if place is None else settings[place].name
        self._provider = provider
        self._rows = rows
        left = [setting.name for setting in settings[len(runs) :]]
        if left and cut is not None:
            self.reason = f"{self.reason.removesuffix('.')}; not measured, for {cut}: {', '.join(left)}."

    def plot(self, *, title: str | None = None, ax: Any = None) -> Picture | Any:
        """Draw rows per second and latencies by concurrency, and by batch where there are any.

        Returns a matplotlib figure that shows itself once, unless it is given ``ax=`` to draw
        into, which it then returns.
        """
        from batchkit import plots

        if ax is None:
            return plots.tuning(self.table, self._chosen, title=title)
        return plots.tuning(self.table, self._chosen, title=title, ax=ax)

    def __repr__(self) -> str:
        table = self._shown().to_string(index=False, justify="right") if len(self.table) else ""
        return "\n".join(filter(None, (self._headline(), table, self._advice(), self.reason)))

    def _repr_html_(self) -> str:
        # No colours of its own: the page's are right on light and on dark.
        table = self._shown().to_html(index=False, border=0) if len(self.table) else ""
        advice = f"<b>{escape(self._advice())}</b>"
        return f"<div>{escape(self._headline())}</div>{table}<div>{advice}</div><div>{escape(self.reason)}</div>"

    def _headline(self) -> str:
        count = len(self.table)
        name = " ".join(self._provider.split())
        return f"Tuning of {name}: {self._rows:,} rows at {count} setting{'' if count == 1 else 's'}"

    def _advice(self) -> str:
        if self.recommended is None:
            return "Recommended: none"
        return f"Recommended: {', '.join(f'{name}={value!r}' for name, value in self.recommended.items())}"

    def _shown(self) -> pd.DataFrame:
        """The table as text, without what says nothing here."""
        table = self.table
        idle = [name for name in ("batch_size", "batch_time") if table[name].isna().all()]
        idle += [name for name in ("overloaded",) if not table[name].any()]
        shown = pd.DataFrame({"": ["→" if name == self._chosen else "" for name in table["setting"]]})
        for name in table.columns.drop(idle):
            shown[name] = [_written(name, value) for value in table[name]]
        return shown


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    provider: Provider
    concurrency: int
    batch: tuple[int, float] | None
    keywords: dict[str, Any]


# ---- what is given --------------------------------------------------------------------------------


def _read(sample: Any, column: Any) -> tuple[pd.DataFrame, Any]:
    """The rows as a frame, and which column holds the text."""
    if isinstance(sample, pd.DataFrame):
        if column is None:
            names = ", ".join(repr(name) for name in list(sample.columns)[:10])
            raise InputError(f"tune: which column of the DataFrame holds the text? Give column=, one of {names}.")
        return sample, column
    if column is not None:
        raise InputError(f"tune: column={column!r} is for a DataFrame; this sample is a {type(sample).__name__}.")
    if isinstance(sample, str) or not isinstance(sample, Iterable):
        raise InputError(f"tune: the sample must be a Series, a list of texts or a DataFrame; got {sample!r}.")
    texts = sample if isinstance(sample, pd.Series) else pd.Series(list(sample), dtype=object)
    name = texts.name if isinstance(texts.name, str) else "text"
    return texts.to_frame(name), name


def _plain(provider: Provider, concurrency: Any) -> list[_Setting]:
    if isinstance(concurrency, (Integral, str)) or not isinstance(concurrency, Iterable):
        concurrency = (concurrency,)
    slots = [checks.whole("tune", "concurrency", value, 1) for value in concurrency]
    _refuse_twice("concurrency", slots)
    return [
        _Setting(
            "serial" if count == 1 else f"{count} at once",
            provider._with_slots(count),
            count,
            None,
            {"max_concurrency": count},
        )
        for count in slots
    ]


def _collecting(provider: Provider, batches: Any, rows: int) -> list[_Setting]:
    """A provider whose calls a `RunnableBatch` merges, for each pair."""
    if batches is None:
        return []
    pairs = [_pair(pair) for pair in _listed(batches)]
    _refuse_twice("batches", pairs)
    return [_collected(provider, size, seconds, rows) for size, seconds in pairs]


def _collected(provider: Provider, size: int, seconds: float, rows: int) -> _Setting:
    from batchkit.runnable import RunnableBatch

    collected = provider._collected(partial(RunnableBatch, max_batch_size=size, max_batch_time=seconds))
    if collected is None:
        raise ConfigError(
            f"tune: batches= is for what takes a list of rows, bk.LangChain(...) or "
            f"bk.FunctionProvider(fn, batched=True). {provider.name} takes one row a request, which no batch makes "
            "fewer: leave it out."
        )
    name = f"batches of {size}, {seconds:g} s"
    keywords = {"max_batch_size": size, "max_batch_time": seconds}
    return _Setting(name, collected._with_slots(rows), rows, (size, seconds), keywords)


def _listed(batches: Any) -> list[Any]:
    if isinstance(batches, str) or not isinstance(batches, Iterable):
        raise ConfigError(
            f"tune: batches={batches!r} must be (max_batch_size, max_batch_time) pairs, such as [(16, 0.1)]."
        )
    return list(batches)


def _pair(pair: Any) -> tuple[int, float]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ConfigError(
            f"tune: batches holds {pair!r}, not a (max_batch_size, max_batch_time) pair such as (16, 0.1)."
        )
    size, seconds = pair
    if not checks.is_number(seconds) or seconds < 0:
        raise ConfigError(f"tune: max_batch_time={seconds!r} must be seconds, 0 or more.")
    return checks.whole("tune", "max_batch_size", size, 1), float(seconds)


def _refuse_twice(name: str, values: Sequence[Any]) -> None:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise ConfigError(f"tune: {name} holds {twice[0]!r} twice, which would be paid for twice. Name it once.")


# ---- what is done ---------------------------------------------------------------------------------


def _measure(asked: Asked, name: str, settings: Sequence[_Setting], rows: int) -> Tuning:
    runs: list[Run] = []
    cut: str | None = None
    left = asked.terms.max_cost
    view = choose(asked.progress)
    try:
        for setting in settings:
            terms = replace(asked.terms, max_cost=left)
            run = carry_out(replace(asked, route=setting.provider, terms=terms), _titled(view, f"tune, {setting.name}"))
            cut = _WHY_CUT.get(run.snapshot.finished or "")
            if cut is not None:
                break
            runs.append(run)
            (lane,) = run.snapshot.lanes
            if lane.stopped is not None:
                cut = f"{name} was stopped ({lane.stopped.kind}): {lane.stopped.message.removesuffix('.')}"
                break
            left = None if left is None else max(0.0, left - run.spent)
    except KeyboardInterrupt:
        stop = Interrupted(_interrupted(settings, len(runs)))
        stop.tuning = Tuning(name, settings, runs, rows, "it was interrupted")
        raise stop from None
    return Tuning(name, settings, runs, rows, cut)


def _titled(view: Callable[[str], View] | None, title: str) -> Callable[[str], View] | None:
    return None if view is None else lambda _: view(title)


def _interrupted(settings: Sequence[_Setting], done: int) -> str:
    if not done:
        return f"none of {len(settings)} settings is measured to its end."
    names = ", ".join(setting.name for setting in settings[:done])
    return f"{done} of {len(settings)} settings are measured ({names}): import sys; sys.last_value.tuning has them."


# ---- what is found --------------------------------------------------------------------------------


def _table(settings: Sequence[_Setting], runs: Sequence[Run], rows: int) -> pd.DataFrame:
    lines = [_line(setting, run, rows) for setting, run in zip(settings, runs, strict=False)]
    table = pd.DataFrame(lines, columns=list(_COLUMNS))
    return table.astype({name: dtype for name, dtype in _COLUMNS.items() if dtype is not None})


_COLUMNS: dict[str, str | None] = {
    "setting": None,
    "concurrency": "int64",
    "batch_size": "Int64",
    "batch_time": "float64",
    "seconds": "float64",
    "rows_per_second": "float64",
    "failures": "int64",
    "rate_limited": "int64",
    "overloaded": "int64",
    "in_flight": "int64",
    "p50": "float64",
    "p90": "float64",
    "p99": "float64",
    "cost": "float64",
}


def _line(setting: _Setting, run: Run, rows: int) -> dict[str, Any]:
    requests, seconds, answered = run.requests, run.elapsed, run.snapshot.answered
    calls = requests.drop_duplicates(["started", "ended"])
    replies = requests.loc[requests["error"].isna(), "seconds"].to_numpy()
    size, time = setting.batch or (pd.NA, np.nan)
    usd = None if run.cost_is_partial else run.cost.usd
    return {
        "setting": setting.name,
        "concurrency": setting.concurrency,
        "batch_size": size,
        "batch_time": time,
        "seconds": seconds,
        "rows_per_second": answered / max(seconds, 1e-9),
        "failures": rows - answered,
        "rate_limited": int((requests["error"] == "rate_limited").sum()),
        "overloaded": int(requests["status"].isin(_OVERLOADED).sum()),
        "in_flight": most_at_once(calls["started"].to_numpy(), calls["ended"].to_numpy()),
        "p50": quantile(replies, 0.50),
        "p90": quantile(replies, 0.90),
        "p99": quantile(replies, 0.99),
        "cost": np.nan if usd is None else usd,
    }


def _measured(setting: _Setting, line: Any, rows: int) -> Measured:
    return Measured(
        setting.name,
        setting.concurrency,
        rows,
        rows - line.failures,
        line.rows_per_second,
        line.p50,
        line.rate_limited,
        line.overloaded,
        line.in_flight if setting.batch is None else None,
        setting.batch,
    )


def _written(name: str, value: Any) -> str:
    if pd.isna(value):
        return "unknown" if name == "cost" else "–"
    if name == "cost":
        return dollars(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return str(value)
