"""What a view shows of a run, as plain values, and the same as HTML and as text. Knows no clock and no notebook."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from batchkit._logic.pricing import dollars

if TYPE_CHECKING:
    from batchkit._logic.progress import LaneSnapshot, Snapshot

__all__ = [
    "COLOURS",
    "Bar",
    "Pace",
    "Part",
    "Picture",
    "bundle",
    "picture",
    "render_html",
    "render_line",
    "render_text",
]

COLOURS: Mapping[str, str] = {
    "answered": "#0072b2",
    "failed": "#d55e00",
    "retrying": "#9a60c0",
    "in flight": "#5b8fb0",
    "frame": "#808080",
}
"""Of bars and their legends, told apart by who sees no red or green; at least 3 : 1 on white and on #111.

Text has no colour of its own: none reaches 4.5 : 1 on both, the page's own does.
"""

_SPAN = 10.0
"""Seconds over which the pace is taken."""
_LONGEST = 200
"""Characters of an error's text."""

_ENDS: Mapping[str, str] = {
    "cancelled": "Cancelled",
    "interrupted": "Interrupted",
    "raised": "Ended at the first row that failed",
    "max_cost": "Ended, for max_cost was reached",
    "max_seconds": "Ended, for max_seconds were over",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: what it counts, and which part of the bar it takes."""

    kind: str
    count: int
    share: float
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One provider."""

    name: str
    rows: str
    """How many of how many."""
    percent: int
    parts: tuple[Part, ...]
    facts: tuple[str, ...]
    """Pace, latency, time left, tokens, cost."""
    notes: tuple[str, ...]
    """What it waits for, what its model refused."""


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a view shows."""

    title: str
    headline: str
    alerts: tuple[str, ...]
    """Who was stopped, and why: said before all numbers."""
    facts: tuple[str, ...]
    bars: tuple[Bar, ...]
    errors: tuple[str, ...]
    notes: tuple[str, ...]


class Pace:
    """Rows per second over the last ten seconds, all and by provider. Rows that cost nothing are not counted."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, tuple[int, ...]]] = deque()

    def add(self, snapshot: Snapshot) -> None:
        """Take in where the run stands now."""
        if self._seen and snapshot.elapsed - self._seen[-1][0] > _SPAN:
            self._seen.clear()  # the process stood still, which says nothing about the pace
        self._seen.append((snapshot.elapsed, tuple(lane.settled for lane in snapshot.lanes)))
        while len(self._seen) > 2 and self._seen[1][0] <= snapshot.elapsed - _SPAN:
            self._seen.popleft()

    def by_lane(self) -> tuple[float, ...]:
        """Rows per second of each provider; empty as long as nothing can be said."""
        if len(self._seen) < 2:
            return ()
        (began, before), (ended, after) = self._seen[0], self._seen[-1]
        if ended <= began:
            return ()
        return tuple((now - then) / (ended - began) for then, now in zip(before, after, strict=True))

    def of_all(self, snapshot: Snapshot) -> float | None:
        """Rows per second of all, since the run began where too little was seen; None where nothing can be said."""
        return sum(rates) if (rates := self.by_lane() or _rates(snapshot)) else None


def _rates(snapshot: Snapshot) -> tuple[float, ...]:
    """Rows per second of each provider since the run began."""
    return tuple(lane.settled / snapshot.elapsed for lane in snapshot.lanes) if snapshot.elapsed > 0 else ()


def picture(title: str, snapshot: Snapshot, pace: Pace | None = None, notes: Sequence[str] = ()) -> Picture:
    """What to show of a run at a moment.

    Parameters
    ----------
    title : str
        The output's name.
    snapshot : Snapshot
        Where the run stands.
    pace : Pace, optional
        The pace of the last seconds. Default: that of the whole run.
    notes : sequence of str
        Lines to stand at the end.
    """
    rates = (pace.by_lane() if pace is not None and snapshot.finished is None else ()) or _rates(snapshot)
    by_lane: Sequence[float | None] = rates or [None] * len(snapshot.lanes)
    several = len(snapshot.lanes) > 1
    return Picture(
        _one_line(title),
        _headline(snapshot),
        tuple(_alert(lane) for lane in snapshot.lanes if lane.stopped is not None),
        tuple(_facts_of_all(snapshot, sum(rates) if rates else None)) if several else (),
        tuple(_bar(lane, snapshot, rate) for lane, rate in zip(snapshot.lanes, by_lane, strict=True)),
        tuple(_error(kind, count, snapshot.examples.get(kind)) for kind, count in snapshot.errors.items()),
        (*_saved(snapshot), *notes),
    )


# ---- what is said ---------------------------------------------------------------------------------


def _headline(now: Snapshot) -> str:
    took = _duration(now.elapsed)
    if now.finished is None:
        return f"{now.done:,} of {now.rows:,} rows ({_percent(now.done, now.rows)} %), {took}"
    rest = now.rows - now.done
    counts = [f"{now.answered:,} of {now.rows:,} rows answered"]
    counts += [f"{now.failed:,} failed"] if now.failed else []
    counts += [f"{rest:,} not answered"] if rest else []
    said = f"{', '.join(counts)}{',' if len(counts) > 1 else ''} in {took}"
    how = _ENDS.get(now.finished)
    return said if how is None else f"{how}: {said}"


def _facts_of_all(now: Snapshot, rate: float | None) -> Iterator[str]:
    rest = now.rows - now.done
    yield from _pace(rate, rest, now)
    yield _tokens(sum(lane.tokens_in for lane in now.lanes), sum(lane.tokens_out for lane in now.lanes))
    known = [lane.cost for lane in now.lanes if lane.cost is not None]
    partial = any(lane.cost_is_partial for lane in now.lanes)
    spent = None if partial and not sum(known) else sum(known)
    yield _cost(spent, partial, sum(lane.settled for lane in now.lanes), rest, now)


def _bar(lane: LaneSnapshot, now: Snapshot, rate: float | None) -> Bar:
    done = lane.answered + lane.failed
    total = done + lane.expected
    about = "about " if lane.expected != lane.open_rows else ""
    is_over = now.finished is not None and not lane.open_rows
    rows = f"{done:,} rows" if is_over else f"{done:,} of {about}{round(total):,} rows"
    return Bar(
        _one_line(lane.name),
        rows,
        _percent(done, total),
        tuple(_parts(lane, total)),
        tuple(_facts(lane, now, rate)),
        tuple(_notes(lane, now)),
    )


def _parts(lane: LaneSnapshot, total: float) -> Iterator[Part]:
    slots = "" if lane.slots is None else f" of {lane.slots:,}"
    counts = {
        "answered": (lane.answered, f"{lane.answered:,} answered"),
        "failed": (lane.failed, f"{lane.failed:,} failed"),
        "retrying": (lane.retrying, f"{lane.retrying:,} retrying"),
        "in flight": (lane.in_flight, f"{lane.in_flight:,}{slots} in flight"),
    }
    left = 1.0
    for kind, (count, label) in counts.items():
        share = min(left, count / total) if total else 0.0
        left -= share
        if count:
            yield Part(kind, count, share, label)


def _facts(lane: LaneSnapshot, now: Snapshot, rate: float | None) -> Iterator[str]:
    yield from _pace(rate, lane.expected, now)
    if lane.p50 is not None and lane.p99 is not None:
        yield f"p50 {_latency(lane.p50)}, p99 {_latency(lane.p99)}"
    yield _tokens(lane.tokens_in, lane.tokens_out)
    yield _cost(lane.cost, lane.cost_is_partial, lane.settled, lane.expected, now)


def _pace(rate: float | None, rest: float, now: Snapshot) -> Iterator[str]:
    if rate is None:
        return
    yield f"{rate:,.1f} rows/s" if rate < 99.95 else f"{rate:,.0f} rows/s"
    if now.finished is None and rest > 0:
        yield f"about {_duration(rest / rate)} left" if rate > 0 else "time left unknown"


def _tokens(tokens_in: int, tokens_out: int) -> str:
    return f"{tokens_in:,} tokens in, {tokens_out:,} out"


def _cost(spent: float | None, partial: bool, settled: int, rest: float, now: Snapshot) -> str:
    if spent is None:
        return "price unknown"
    text = dollars(spent) + (" and some unknown" if partial else "")
    if now.finished is None and settled and rest > 0 and not partial and spent:
        text += f" of about {dollars(spent + spent / settled * rest)}"
    return text


def _alert(lane: LaneSnapshot) -> str:
    why = "" if lane.stopped is None else f"stopped ({lane.stopped.kind}): {_short(lane.stopped.message)}"
    return f"{_one_line(lane.name)}: {why}"


def _notes(lane: LaneSnapshot, now: Snapshot) -> Iterator[str]:
    if lane.stopped is None and now.finished is None:
        yield from _waiting(lane, now)
    for how in lane.adapted:
        yield _short(how)


def _waiting(lane: LaneSnapshot, now: Snapshot) -> Iterator[str]:
    """What keeps a provider from being asked more."""
    if lane.paused_until is not None and lane.paused_until > now.now:
        yield f"waiting {_duration(lane.paused_until - now.now)}: it asked for fewer requests"
    elif lane.retrying and not lane.in_flight:
        yield "waiting a moment before asking again"
    elif not lane.requests and not lane.in_flight and lane.open_rows:
        yield "getting ready"
    elif lane.held_by is not None:
        yield f"waiting for its limit: {lane.held_by}"


def _error(kind: str, count: int, example: str | None) -> str:
    rows = "row" if count == 1 else "rows"
    return f"{count:,} {rows} failed ({kind})" + (f", e.g. {_short(example)}" if example else "")


def _saved(now: Snapshot) -> Iterator[str]:
    if now.reused:
        yield f"{now.reused:,} of {now.rows:,} already answered: they cost nothing this time."
    if now.duplicates:
        yield f"{now.duplicates:,} of {now.rows:,} are duplicates of others: asked once."


def _percent(done: float, total: float) -> int:
    """Rounded down: 100 is when all is done."""
    return int(100 * done / total) if total else 100


def _duration(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def _latency(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def _one_line(text: str) -> str:
    """Without breaks, nor what a terminal takes for a command."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _short(text: str) -> str:
    text = _one_line(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# ---- how it looks ---------------------------------------------------------------------------------


def render_html(shown: Picture) -> str:
    """A picture as HTML: all text escaped, inline styles only, so that it stands in any saved notebook."""
    head = f"<b>{escape(shown.title)}</b>: {escape(shown.headline)}"
    alerts = "".join(_div(_swatch("failed") + escape(alert)) for alert in shown.alerts)
    body = [_div(head, "font-size:1.05em"), alerts, _small(shown.facts)]
    body += [_bar_html(bar) for bar in shown.bars]
    errors = "".join(_div(_swatch("failed") + escape(error)) for error in shown.errors)
    notes = "".join(_div(escape(note)) for note in shown.notes)
    body += [_div(lines, "margin:6px 0px 0px 0px") for lines in (errors, notes) if lines]
    return _div("".join(body), "font-family:sans-serif;font-size:13px;line-height:1.5;max-width:56em;margin:2px 0px")


def _bar_html(bar: Bar) -> str:
    legend = " &nbsp; ".join(_swatch(part.kind) + escape(part.label) for part in bar.parts)
    pieces = "".join(
        f'<div style="width:{100 * part.share:.2f}%;height:10px;background-color:{COLOURS[part.kind]}"></div>'
        for part in bar.parts
    )
    label = escape(f"{bar.name}: {bar.rows}", quote=True)
    track = (
        f'<div role="progressbar" aria-label="{label}" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{bar.percent}" style="display:flex;height:10px;margin:2px 0px;overflow:hidden;'
        f'border:1px solid {COLOURS["frame"]};border-radius:3px">{pieces}</div>'
    )
    head = f"<b>{escape(bar.name)}</b> &nbsp; {escape(bar.rows)}" + (f": &nbsp; {legend}" if legend else "")
    notes = "".join(_div(escape(note)) for note in bar.notes)
    return _div(_div(head) + track + _small(bar.facts) + notes, "margin:6px 0px 0px 0px")


def _small(facts: Sequence[str]) -> str:
    return _div(" · ".join(map(escape, facts)), "font-size:0.92em") if facts else ""


def _swatch(kind: str) -> str:
    style = f"display:inline-block;width:9px;height:9px;border-radius:2px;background-color:{COLOURS[kind]}"
    return f'<span style="{style}"></span> '


def _div(content: str, style: str = "") -> str:
    return f'<div style="{style}">{content}</div>' if style else f"<div>{content}</div>"


def render_text(shown: Picture) -> str:
    """A picture as lines of plain text."""
    lines = [f"{shown.title}: {'; '.join((shown.headline, *shown.facts))}"]
    lines += [f"  {alert}" for alert in shown.alerts]
    for bar in shown.bars:
        counts = ", ".join(part.label for part in bar.parts)
        lines.append(f"  {bar.name}: {'; '.join((f'{bar.rows} ({counts})' if counts else bar.rows, *bar.facts))}")
        lines += [f"  {bar.name}: {note}" for note in bar.notes]
    lines += [f"  {text}" for text in (*shown.errors, *shown.notes)]
    return "\n".join(lines)


def render_line(shown: Picture) -> str:
    """A picture as one line, for a log."""
    facts = shown.facts or (shown.bars[0].facts if shown.bars else ())
    notes = [f"{bar.name}: {note}" for bar in shown.bars for note in bar.notes]
    return f"{shown.title}: {'; '.join((shown.headline, *shown.alerts, *facts, *notes, *shown.errors))}"


def bundle(shown: Picture, *, html: bool = True) -> dict[str, str]:
    """A picture as what a notebook stores: by MIME type."""
    text = {"text/plain": render_text(shown)}
    return {**text, "text/html": render_html(shown)} if html else text
