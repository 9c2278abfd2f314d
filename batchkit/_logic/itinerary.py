"""Which provider a row is asked at next, given what came of it so far.

An itinerary is a small tree. Its leaves are *seats*: places at which one question is asked of
any one of a set of providers. `advance` looks at the outcomes of the seats asked so far and says
which seats to ask now, or that the row is done. It knows neither time nor network, so that every
route, however it nests, is a table of small tests.

Providers are numbers here: positions in the plan's list of lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from batchkit.records import Answer, Failure

__all__ = [
    "NOBODY",
    "Ask",
    "Cascade",
    "Done",
    "Fallback",
    "Node",
    "Outcome",
    "Panel",
    "Seat",
    "advance",
    "seated",
    "seats_of",
]


class Outcome(NamedTuple):
    """What came of one seat: a checked answer or a failure, and who gave it."""

    provider: int
    answer: Answer | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """Ask any one of ``providers``: one of them is a plain provider, several are a balance."""

    providers: frozenset[int]
    number: int = -1
    """The seat's place in its tree; `seated` gives it."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """Ask the first; where it failed, the next."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Cascade:
    """Ask the first; where its confidence is below its bar, missing, or it failed, the next.

    The last stage's answer stands whatever its confidence. If the last stage fails, the
    latest earlier answer stays.
    """

    stages: tuple[Node, ...]
    below: tuple[float, ...]
    """One bar for each stage but the last."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Ask all at once; the majority's answer counts, a tie is missing."""

    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Nobody:
    """Ask nobody."""


NOBODY = Nobody()

Node = Seat | Fallback | Cascade | Panel | Nobody


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask these seats, all of them, now. Seats asked before may be among them."""

    seats: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to ask. ``outcome`` is None where nobody was to be asked."""

    outcome: Outcome | None


def seated(node: Node) -> Node:
    """Number the seats of a tree from 0, depth first, so that outcomes can name them."""
    numbered, _ = _seat(node, 0)
    return numbered


def _seat(node: Node, start: int) -> tuple[Node, int]:
    match node:
        case Seat():
            return replace(node, number=start), start + 1
        case Fallback(children) | Panel(children):
            children, start = _seat_all(children, start)
            return type(node)(children), start
        case Cascade(children, below):
            children, start = _seat_all(children, start)
            return Cascade(children, below), start
        case _:
            return node, start


def _seat_all(nodes: Sequence[Node], start: int) -> tuple[tuple[Node, ...], int]:
    done = []
    for node in nodes:
        numbered, start = _seat(node, start)
        done.append(numbered)
    return tuple(done), start


def seats_of(node: Node) -> tuple[Seat, ...]:
    """All seats of a tree, in the order of their numbers."""
    match node:
        case Seat():
            return (node,)
        case Fallback(children) | Panel(children) | Cascade(children, _):
            return tuple(seat for child in children for seat in seats_of(child))
        case _:
            return ()


def advance(node: Node, outcomes: Mapping[int, Outcome]) -> Ask | Done:
    """Say what is next for a row.

    Parameters
    ----------
    node : Node
        A tree whose seats are numbered (see `seated`).
    outcomes : mapping of int to Outcome
        By seat number, what came of each seat that has been settled.
    """
    match node:
        case Seat(number=number):
            outcome = outcomes.get(number)
            return Ask((node,)) if outcome is None else Done(outcome)
        case Fallback(options):
            return _fall_back(options, outcomes)
        case Cascade(stages, below):
            return _cascade(stages, below, outcomes)
        case Panel(members):
            return _panel(members, outcomes)
        case Nobody():
            return Done(None)


def _fall_back(options: Sequence[Node], outcomes: Mapping[int, Outcome]) -> Ask | Done:
    last = Done(None)
    for option in options:
        step = advance(option, outcomes)
        if isinstance(step, Ask) or _answer(step) is not None:
            return step
        if step.outcome is not None:
            last = step
    return last


def _cascade(stages: Sequence[Node], below: Sequence[float], outcomes: Mapping[int, Outcome]) -> Ask | Done:
    kept = last = Done(None)
    for stage, bar in zip(stages, (*below, None), strict=True):
        step = advance(stage, outcomes)
        if isinstance(step, Ask):
            return step
        answer = _answer(step)
        if answer is not None:
            kept = step
            if bar is not None and answer.confidence is not None and answer.confidence >= bar:
                return step
        if step.outcome is not None:
            last = step
    return kept if kept.outcome is not None else last


def _panel(members: Sequence[Node], outcomes: Mapping[int, Outcome]) -> Ask | Done:
    steps = [advance(member, outcomes) for member in members]
    open_seats = tuple(seat for step in steps if isinstance(step, Ask) for seat in step.seats)
    if open_seats:
        return Ask(open_seats)
    results = [step.outcome for step in steps if isinstance(step, Done) and step.outcome is not None]
    opinions = [(result, result.answer) for result in results if result.answer is not None]
    if not opinions:
        return Done(results[-1] if results else None)
    tally: dict[tuple[type, Any], list[Outcome]] = {}
    for result, answer in opinions:
        tally.setdefault(_identity(answer.value), []).append(result)
    ranked = sorted(tally.values(), key=len, reverse=True)
    share = len(ranked[0]) / len(opinions)
    tied = len(ranked) > 1 and len(ranked[1]) == len(ranked[0])
    first = ranked[0][0]
    value = None if tied or first.answer is None else first.answer.value
    return Done(Outcome(first.provider, Answer(value, share, "agreement")))


def _answer(step: Done) -> Answer | None:
    """The answer a step brought; a panel's tie is none, so that those behind it are asked."""
    answer = None if step.outcome is None else step.outcome.answer
    return None if answer is None or answer.value is None else answer


def _identity(value: Any) -> tuple[type, Any]:
    """Equal and of the same type: the labels 1 and True are two opinions, lists compare by content."""
    return type(value), tuple(value) if isinstance(value, list) else value
