"""Which of several measured settings to take, and why. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batchkit._logic.tasks import Classify
from batchkit.records import Answer, Complaint, Reply

__all__ = ["AnyReply", "Measured", "recommend"]

_NEAR = 0.95
"""A setting of so much of the best one's pace is as good."""
_CLIMBING = 1.2
"""So many times the pace of the setting below, and the next one above would probably be faster yet."""
_WAVES = 3
"""Fewer rows than so many for each request in flight, and beginning and end weigh too much."""


class AnyReply(Classify):
    """A `Classify` that counts every reply as an answer: for those who ask how fast, not what."""

    def check(self, reply: Reply) -> Answer | Complaint:
        """Read a label out of a reply; what names none is an answer without a label."""
        verdict = Classify.check(self, reply)
        return Answer(None) if isinstance(verdict, Complaint) else verdict


@dataclass(frozen=True, slots=True)
class Measured:
    """What one setting came to."""

    name: str
    """As a sentence can begin with it, such as ``10 at once``."""
    concurrency: int
    """Requests in flight at once at most; where calls are collected, calls waiting for an answer."""
    rows: int
    answered: int
    rows_per_second: float
    """Rows answered per second."""
    p50: float
    """Seconds; NaN without any reply."""
    rate_limited: int = 0
    """Attempts refused for want of quota."""
    overloaded: int = 0
    """Attempts refused because the provider was overloaded."""
    in_flight: int | None = None
    """The most requests that were in flight at once; None where that says nothing."""
    batch: tuple[int, float] | None = None
    """Size and seconds, where single calls are collected."""

    @property
    def failures(self) -> int:
        """Rows without an answer."""
        return self.rows - self.answered

    @property
    def refusals(self) -> int:
        """Attempts at which the provider asked for fewer."""
        return self.rate_limited + self.overloaded

    @property
    def load(self) -> tuple[int, float, float]:
        """Ascends with what a setting asks of the provider: plain calls first, fewer first."""
        return (0, self.concurrency, 0.0) if self.batch is None else (1, *self.batch)


def recommend(measured: Sequence[Measured]) -> tuple[int | None, str]:
    """Choose a setting.

    Of the settings that nobody refused anything and that failed on no more rows than the best one
    did (a row may fail whatever the setting), the smallest that reaches 95 % of the highest pace
    among them. Where all were refused something, the one with the fewest failures, then refusals.

    Parameters
    ----------
    measured : sequence of Measured

    Returns
    -------
    int or None
        The position of the chosen one; None if no setting answered anything.
    str
        The reason: one sentence.

    Examples
    --------
    >>> slow, fast = Measured("serial", 1, 60, 60, 5.0, 0.2), Measured("5 at once", 5, 60, 60, 24.0, 0.21)
    >>> recommend([slow, fast])[0]
    1
    """
    if not any(one.answered for one in measured):
        return None, _nothing(measured)
    least = min(one.failures for one in measured)
    calm = [one for one in measured if one.failures == least and not one.refusals]
    if not calm:
        chosen = min(measured, key=lambda one: (one.failures, one.refusals, one.load))
        return measured.index(chosen), _least_troubled(chosen, measured)
    best = max(calm, key=lambda one: one.rows_per_second)
    near = [one for one in calm if one.rows_per_second >= _NEAR * best.rows_per_second]
    chosen = min(near, key=lambda one: one.load)
    parts = [_pace(chosen, best, measured), *_why_not_more(chosen, best, measured, calm)]
    parts += [f"{least} of {chosen.rows} rows failed at every setting"] if least else []
    return measured.index(chosen), f"{'; '.join([*parts, *_doubts(chosen, measured)])}."


def _nothing(measured: Sequence[Measured]) -> str:
    if not measured:
        return "No setting was measured to its end."
    return "No row was answered at any setting, so none can be recommended; .runs[0].failed says why."


def _least_troubled(chosen: Measured, measured: Sequence[Measured]) -> str:
    of = f" of {len(measured)} settings" if len(measured) > 1 else ""
    return (
        f"{chosen.name}: {_rate(chosen)}, with the least trouble{of} ({_trouble(chosen)}); "
        "none was free of it, so try fewer at once, or give the provider its limits as rpm= or tpm=."
    )


def _pace(chosen: Measured, best: Measured, measured: Sequence[Measured]) -> str:
    said = f"{chosen.name}: {_rate(chosen)}"
    if chosen is not best:
        return f"{said}, within 5 % of the fastest ({best.name}, {_rate(best)})"
    if len(measured) == 1:
        return f"{said}, the only setting measured"
    faster = any(one.rows_per_second > chosen.rows_per_second for one in measured)
    return f"{said}, the fastest" + (" without trouble" if faster else f" of {len(measured)} settings")


def _why_not_more(
    chosen: Measured, best: Measured, measured: Sequence[Measured], calm: Sequence[Measured]
) -> Iterator[str]:
    """What the next larger setting of the same kind showed, or that there is none."""
    kind = sorted((one for one in measured if (one.batch is None) is (chosen.batch is None)), key=lambda one: one.load)
    place = kind.index(chosen)
    if place + 1 < len(kind):
        above = kind[place + 1]
        if above not in calm:
            yield f"{above.name} had {_trouble(above)}"
        elif _queues(chosen, above):
            yield (
                f"with {above.name} p50 grows from {_seconds(chosen.p50)} to {_seconds(above.p50)}, "
                "so more requests only queue at the provider"
            )
        elif above is not best:
            yield f"{above.name} came to {_rate(above)}"
    elif place and chosen.batch is None and chosen is best:
        times = chosen.rows_per_second / max(kind[place - 1].rows_per_second, 1e-9)
        if times >= _CLIMBING:
            yield f"that is still {times:.1f} times the pace of {kind[place - 1].name}, so more may be faster yet"


def _queues(chosen: Measured, above: Measured) -> bool:
    """Whether latency grows with the number in flight, at least half as much: they wait for each other."""
    if chosen.batch is not None or math.isnan(chosen.p50) or math.isnan(above.p50):
        return False
    return above.p50 >= chosen.p50 * (1 + 0.5 * (above.concurrency / chosen.concurrency - 1))


def _doubts(chosen: Measured, measured: Sequence[Measured]) -> Iterator[str]:
    """What keeps the numbers from saying more."""
    if chosen.in_flight is not None and chosen.in_flight < min(chosen.concurrency, chosen.rows):
        yield f"there were never more than {chosen.in_flight} in flight"
    most = max((one.concurrency for one in measured if one.batch is None), default=0)
    if chosen.rows < _WAVES * most:
        yield f"{chosen.rows} rows are few for {most} at once, {_WAVES * most} would tell more"


def _trouble(one: Measured) -> str:
    counts = ((one.failures, "failed row"), (one.rate_limited, "rate limit"), (one.overloaded, "overload"))
    return " and ".join(f"{count:,} {noun}{'s' if count > 1 else ''}" for count, noun in counts if count)


def _rate(one: Measured) -> str:
    rate = one.rows_per_second
    return f"{rate:,.0f} rows/s" if rate >= 99.95 else f"{rate:.3g} rows/s"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 0.0995 else f"{seconds:.2g} s"
