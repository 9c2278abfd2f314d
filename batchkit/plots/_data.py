"""The numbers behind the pictures, as frames."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from batchkit._logic.progress import Snapshot
from batchkit._logic.stats import quantile
from batchkit.errors import InputError

__all__ = [
    "OUTCOMES",
    "RunLike",
    "assign_slots",
    "compare_data",
    "latency_data",
    "outcome_data",
    "providers_of",
    "throughput_data",
    "timeline_data",
]

OUTCOMES = ("reply", "unusable", "rate_limited", "failed", "cancelled")
"""How an attempt may end."""

_COLUMNS = ("row", "provider", "started", "ended", "error")
_CUT = ("truncated", "refused", "filtered")
_Floats: TypeAlias = npt.NDArray[np.float64]


class RunLike(Protocol):
    """What `compare_data` reads of a run: a `Run` has it."""

    @property
    def requests(self) -> pd.DataFrame:
        """A row per attempt."""

    @property
    def snapshot(self) -> Snapshot:
        """Counts of rows."""

    @property
    def elapsed(self) -> float:
        """Seconds from start to end."""


def timeline_data(requests: pd.DataFrame) -> pd.DataFrame:
    """Every attempt of a run, and every wait before a row was asked once more, with its place in the picture.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`: one row per attempt, with ``row``, ``provider``, ``started`` and ``ended``
        (seconds since the run began) and ``error`` (missing where a reply came); ``finish`` is
        used where it is there.

    Returns
    -------
    DataFrame
        ``row``, ``provider``, ``started``, ``ended``, ``outcome`` and ``slot``. The outcome is
        ``reply``, ``unusable`` (a reply that was cut or refused, or after which the row was asked
        again), ``rate_limited``, ``failed``, ``cancelled``, or ``waiting``. Attempts stand first,
        in their order; then the waits, each with the provider that was asked next. The slot is the
        lowest that was free at that provider, for attempts and waits each by itself.

    Raises
    ------
    InputError
        A column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> tried = {"row": [0, 0], "provider": ["a", "a"], "started": [0.0, 3.0], "ended": [1.0, 4.0]}
    >>> timeline_data(pd.DataFrame(tried | {"error": ["server", None]}))["outcome"].tolist()
    ['failed', 'reply', 'waiting']
    """
    attempts = _checked(requests)
    waits = _waits(attempts)
    for frame in (attempts, waits):
        frame["slot"] = 0
        for _, own in frame.groupby("provider", observed=True, sort=False):
            frame.loc[own.index, "slot"] = assign_slots(own["started"].to_numpy(), own["ended"].to_numpy())
    columns = ["row", "provider", "started", "ended", "outcome", "slot"]
    return pd.concat([attempts[columns], waits[columns]], ignore_index=True) if len(waits) else attempts[columns]


def throughput_data(requests: pd.DataFrame, *, bins: int | None = None) -> pd.DataFrame:
    """What went on at each provider in equal stretches of time.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`.
    bins : int, optional
        Number of stretches. Default: 12 to 120, by the number of requests.

    Returns
    -------
    DataFrame
        A row per provider and stretch: ``provider``, ``start`` and ``end`` in seconds,
        ``rows_per_second`` (rows whose reply came, by time of arrival), ``calls`` (requests that
        left), ``attempts`` and ``failures`` (attempts that ended, and those of them without a
        reply), ``in_flight`` and ``waiting`` (means over the stretch), ``most`` (the most in flight
        at any moment of it), and the mean in flight by outcome: ``reply``, ``unusable``,
        ``rate_limited``, ``failed``, ``cancelled``.

    Raises
    ------
    InputError
        A column is missing, or ``bins`` is below 1.

    Examples
    --------
    >>> import pandas as pd
    >>> tried = {"row": [0, 1], "provider": ["a", "a"], "started": [0.0, 0.0], "ended": [1.0, 2.0]}
    >>> throughput_data(pd.DataFrame(tried | {"error": [None, None]}), bins=2)["in_flight"].tolist()
    [2.0, 1.0]
    """
    attempts = _checked(requests)
    if bins is not None and bins < 1:
        raise InputError(f"bins={bins!r} must be 1 or more.")
    count = bins if bins is not None else int(np.clip(len(attempts) // 10, 12, 120))
    waits = _waits(attempts)
    end = float(attempts["ended"].max()) if len(attempts) else 0.0
    edges = np.linspace(0.0, max(end, 1e-6), count + 1)
    parts = [
        _in_bins(name, attempts[attempts["provider"] == name], waits[waits["provider"] == name], edges)
        for name in providers_of(attempts)
    ]
    return pd.concat(parts, ignore_index=True) if parts else _in_bins("", attempts, waits, edges).iloc[:0]


def latency_data(requests: pd.DataFrame) -> pd.DataFrame:
    """How long replies took at each provider.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`.

    Returns
    -------
    DataFrame
        By ``provider``: ``replies``, ``failures`` (attempts without a reply, which count in no
        quantile), and ``mean``, ``p50``, ``p90``, ``p99``, ``max`` in seconds from a request's
        start to its reply; NaN where there was none.

    Raises
    ------
    InputError
        A column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> tried = {"row": [0, 1], "provider": ["a", "a"], "started": [0.0, 0.0], "ended": [1.0, 2.0]}
    >>> latency_data(pd.DataFrame(tried | {"error": [None, None]}))["p50"].tolist()
    [1.5]
    """
    attempts = _checked(requests)
    table = []
    for name in providers_of(attempts):
        own = attempts[attempts["provider"] == name]
        seconds = _reply_seconds(own)
        table.append(
            {"provider": name, "replies": len(seconds), "failures": len(own) - len(seconds)} | _spread(seconds)
        )
    columns = ["provider", "replies", "failures", "mean", "p50", "p90", "p99", "max"]
    return pd.DataFrame(table, columns=columns).set_index("provider")


def outcome_data(requests: pd.DataFrame) -> pd.DataFrame:
    """How many attempts of each provider ended how.

    Parameters
    ----------
    requests : DataFrame
        `Run.requests`.

    Returns
    -------
    DataFrame
        By ``provider``: a column of counts for ``reply``, one for ``unusable`` replies, and one for
        every error kind that occurred, the most frequent first.

    Raises
    ------
    InputError
        A column is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> tried = {"row": [0, 0], "provider": ["a", "a"], "started": [0.0, 3.0], "ended": [1.0, 4.0]}
    >>> outcome_data(pd.DataFrame(tried | {"error": ["server", None]})).loc["a"].to_dict()
    {'reply': 1, 'unusable': 0, 'server': 1}
    """
    attempts = _checked(requests)
    names = providers_of(attempts)
    kinds = [str(kind) for kind in attempts["error"].dropna().value_counts().index]
    ended = attempts["error"].where(attempts["error"].notna(), attempts["outcome"])
    counts = pd.crosstab(attempts["provider"], ended) if len(attempts) else pd.DataFrame()
    counts = counts.reindex(index=names, columns=["reply", "unusable", *kinds], fill_value=0)
    return counts.rename_axis(index="provider", columns=None).astype("int64")


def compare_data(runs: Mapping[str, RunLike]) -> pd.DataFrame:
    """Put runs side by side.

    Parameters
    ----------
    runs : mapping of str to Run
        The runs by the name they are to be shown under.

    Returns
    -------
    DataFrame
        By ``run``: ``rows`` asked about, ``answered``, ``failed``, ``reused`` (answers that were
        there before and cost no time), ``requests``, ``seconds`` from start to end,
        ``rows_per_second`` (rows answered in this run, ``reused`` ones not counted), and ``p50``,
        ``p90``, ``p99`` of all its replies in seconds.

    Raises
    ------
    InputError
        There is no run.

    Examples
    --------
    >>> import batchkit as bk
    >>> compare_data({"one by one": bk.last_run()})                               # doctest: +SKIP
    """
    if not runs:
        raise InputError("There is nothing to compare: give one run or more.")
    table = []
    for name, run in runs.items():
        requests, now, seconds = run.requests, run.snapshot, run.elapsed
        spread = _spread(_reply_seconds(_checked(requests)))
        table.append(
            {
                "run": str(name),
                "rows": now.rows,
                "answered": now.answered,
                "failed": now.failed,
                "reused": now.reused,
                "requests": len(requests),
                "seconds": seconds,
                "rows_per_second": (now.answered - now.reused) / seconds if seconds > 0 else np.nan,
            }
            | {name: spread[name] for name in ("p50", "p90", "p99")}
        )
    return pd.DataFrame(table).set_index("run")


def assign_slots(started: Sequence[float] | npt.NDArray[Any], ended: Sequence[float] | npt.NDArray[Any]) -> list[int]:
    """Give every interval the lowest slot that is free when it starts; equal intervals are one.

    Examples
    --------
    >>> assign_slots([0.0, 0.0, 1.0], [1.0, 3.0, 2.0])
    [0, 1, 0]
    """
    taken: dict[tuple[float, float], int] = {}
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for start, end in sorted(set(zip(map(float, started), map(float, ended), strict=True))):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        # Slots are opened one after the other, so those in use and those free are all there are.
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, slot))
        taken[start, end] = slot
    return [taken[float(start), float(end)] for start, end in zip(started, ended, strict=True)]


def providers_of(requests: pd.DataFrame) -> list[str]:
    """Names of those that were asked, in the route's order, else in the order of their first answer."""
    column = requests["provider"]
    asked = [str(name) for name in column.dropna().unique()]
    if isinstance(column.dtype, pd.CategoricalDtype):
        order = [str(name) for name in column.cat.categories]
        asked.sort(key=order.index)
    return asked


# ---- from the attempts to numbers -----------------------------------------------------------------


def _checked(requests: pd.DataFrame) -> pd.DataFrame:
    """A frame of our own with what is needed, and each attempt's outcome."""
    missing = [name for name in _COLUMNS if name not in requests.columns]
    if missing:
        raise InputError(f"Pictures are drawn from the frame Run.requests; this one has no column {missing[0]!r}.")
    attempts = requests[list(_COLUMNS)].reset_index(drop=True).astype({"started": float, "ended": float})
    if not isinstance(attempts["provider"].dtype, pd.CategoricalDtype):
        attempts["provider"] = attempts["provider"].astype(str)
    attempts["error"] = attempts["error"].astype(object)
    cut = requests["finish"].isin(_CUT).to_numpy(bool) if "finish" in requests.columns else False
    attempts["outcome"] = _outcomes(attempts, cut | _was_asked_again(attempts))
    return attempts


def _outcomes(attempts: pd.DataFrame, is_unusable: Any) -> npt.NDArray[np.object_]:
    error = attempts["error"]
    outcome = np.where(is_unusable, "unusable", "reply").astype(object)
    outcome[error.notna()] = "failed"
    for kind in ("rate_limited", "cancelled"):
        outcome[error == kind] = kind
    return outcome


def _was_asked_again(attempts: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether the same provider was asked about the same row once more, afterwards."""
    latest = attempts.groupby(["row", "provider"], observed=True)["started"].transform("max")
    return (latest >= attempts["ended"]).to_numpy(bool) & (latest > attempts["started"]).to_numpy(bool)


def _waits(attempts: pd.DataFrame) -> pd.DataFrame:
    """From the end of every attempt that brought nothing to the row's next one: same provider, else any other."""
    in_order = attempts.sort_values("started", kind="stable")
    next_here = in_order.groupby(["row", "provider"], observed=True)["started"].shift(-1)
    next_anywhere = in_order.groupby("row")[["started", "provider"]].shift(-1)
    waits = in_order.assign(
        started=in_order["ended"],
        ended=next_here.fillna(next_anywhere["started"]),
        provider=in_order["provider"].where(next_here.notna(), next_anywhere["provider"]),
        outcome="waiting",
    )
    brought_nothing = in_order["outcome"] != "reply"
    return waits[brought_nothing & (waits["ended"] > waits["started"])].reset_index(drop=True)


def _in_bins(name: str, attempts: pd.DataFrame, waits: pd.DataFrame, edges: _Floats) -> pd.DataFrame:
    width = edges[1] - edges[0]
    replied = attempts["error"].isna()
    # Rows that travelled together are one request; what went wrong with any of them is its outcome.
    worst_first = attempts.assign(rank=attempts["outcome"].map(OUTCOMES.index)).sort_values("rank", ascending=False)
    calls = worst_first.drop_duplicates(["started", "ended"])
    by_outcome = {outcome: _mean_in_bins(calls[calls["outcome"] == outcome], edges) / width for outcome in OUTCOMES}
    return pd.DataFrame(
        {
            "provider": name,
            "start": edges[:-1],
            "end": edges[1:],
            "rows_per_second": np.histogram(attempts.loc[replied, "ended"], edges)[0] / width,
            "calls": np.histogram(calls["started"], edges)[0],
            "attempts": np.histogram(attempts["ended"], edges)[0],
            "failures": np.histogram(attempts.loc[~replied, "ended"], edges)[0],
            "in_flight": sum(by_outcome.values()),
            "most": _most_in_bins(calls["started"].to_numpy(), calls["ended"].to_numpy(), edges),
            "waiting": _mean_in_bins(waits.drop_duplicates(["started", "ended"]), edges) / width,
            **by_outcome,
        }
    )


def _mean_in_bins(intervals: pd.DataFrame, edges: _Floats) -> _Floats:
    """Seconds of all intervals together that fall into each bin."""
    return np.diff(_seconds_since(intervals["started"], edges) - _seconds_since(intervals["ended"], edges))


def _seconds_since(moments: pd.Series[float], edges: _Floats) -> _Floats:
    """At every edge, how many seconds have passed since all earlier moments together."""
    ordered = np.sort(moments.to_numpy(float))
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    earlier = np.searchsorted(ordered, edges)
    since: _Floats = earlier * edges - sums[earlier]
    return since


def _most_in_bins(started: _Floats, ended: _Floats, edges: _Floats) -> npt.NDArray[np.int64]:
    """The most intervals that lie over any one moment of each bin."""
    moments = np.concatenate([ended, started])  # at a tie one ends before the next begins: its slot is free
    order = np.argsort(moments, kind="stable")
    level = np.cumsum(np.where(order < len(ended), -1, 1))
    place = np.searchsorted(moments[order], edges)
    at_edge = np.where(place > 0, level[np.maximum(place, 1) - 1] if len(level) else 0, 0)[:-1]
    most = at_edge.astype(np.int64)
    into = np.clip(np.searchsorted(edges, moments[order], side="right") - 1, 0, len(edges) - 2)
    np.maximum.at(most, into, level)
    return most


def _reply_seconds(attempts: pd.DataFrame) -> _Floats:
    own = attempts[attempts["error"].isna()]
    seconds: _Floats = (own["ended"] - own["started"]).to_numpy(float)
    return seconds


def _spread(seconds: _Floats) -> dict[str, float]:
    return {
        "mean": float(seconds.mean()) if len(seconds) else np.nan,
        "p50": quantile(seconds, 0.50),
        "p90": quantile(seconds, 0.90),
        "p99": quantile(seconds, 0.99),
        "max": quantile(seconds, 1.0),
    }
