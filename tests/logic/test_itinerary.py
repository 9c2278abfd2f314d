"""Which provider a row is asked at next."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._logic.itinerary import (
    NOBODY,
    Ask,
    Cascade,
    Done,
    Fallback,
    Outcome,
    Panel,
    Seat,
    advance,
    seated,
    seats_of,
)
from batchkit.records import Answer, Failure


def seat(*providers):
    return Seat(frozenset(providers))


def said(provider, value, confidence=None):
    return Outcome(provider, Answer(value, confidence))


def failed(provider, kind="server"):
    return Outcome(provider, failure=Failure(kind, "no"))


def follow(node, outcomes):
    """Advance through a tree with what came of each seat; return the numbers asked in each step, and the end."""
    asked, known, steps = set(), {}, []
    while isinstance(step := advance(node, known), Ask):
        new = [one.number for one in step.seats if one.number not in asked]
        assert new, "nothing new is asked, so the row would wait for ever"
        asked.update(new)
        steps.append(new)
        known.update({number: outcomes[number] for number in new})
    return steps, step


A, B, C = seat(0), seat(1), seat(2)
LOW, HIGH = said(0, "a", 0.5), said(0, "a", 0.9)
PANEL = Panel((A, B, C))


@pytest.mark.parametrize(
    ("node", "outcomes", "steps", "end"),
    [
        (NOBODY, [], [], None),
        (A, [said(0, "a")], [[0]], said(0, "a")),
        (A, [failed(0)], [[0]], failed(0)),
        (seat(0, 1), [said(1, "a")], [[0]], said(1, "a")),
        # fallback
        (Fallback((A, B)), [said(0, "a"), None], [[0]], said(0, "a")),
        (Fallback((A, B)), [failed(0), said(1, "b")], [[0], [1]], said(1, "b")),
        (Fallback((A, B)), [failed(0), failed(1)], [[0], [1]], failed(1)),
        (Fallback((A, NOBODY)), [failed(0)], [[0]], failed(0)),
        (Fallback((NOBODY, A)), [said(0, "a")], [[0]], said(0, "a")),
        (Fallback((NOBODY, NOBODY)), [], [], None),
        (Fallback(()), [], [], None),
        # cascade
        (Cascade((A, B), (0.8,)), [HIGH, None], [[0]], HIGH),
        (Cascade((A, B), (0.9,)), [HIGH, None], [[0]], HIGH),
        (Cascade((A, B), (0.8,)), [LOW, said(1, "b")], [[0], [1]], said(1, "b")),
        (Cascade((A, B), (0.8,)), [LOW, said(1, "b", 0.1)], [[0], [1]], said(1, "b", 0.1)),
        (Cascade((A, B), (0.8,)), [said(0, "a"), said(1, "b")], [[0], [1]], said(1, "b")),
        (Cascade((A, B), (0.8,)), [failed(0), said(1, "b", 0.1)], [[0], [1]], said(1, "b", 0.1)),
        (Cascade((A, B), (0.8,)), [LOW, failed(1)], [[0], [1]], LOW),
        (Cascade((A, B), (0.8,)), [failed(0), failed(1)], [[0], [1]], failed(1)),
        (Cascade((A, B, C), (0.8, 0.8)), [LOW, said(1, "b", 0.6), failed(2)], [[0], [1], [2]], said(1, "b", 0.6)),
        (Cascade((A, B, C), (0.8, 0.5)), [LOW, said(1, "b", 0.6), None], [[0], [1]], said(1, "b", 0.6)),
        (Cascade((A,), ()), [LOW], [[0]], LOW),
        # panel
        (PANEL, [said(0, "a"), said(1, "a"), said(2, "b")], [[0, 1, 2]], Outcome(0, Answer("a", 2 / 3, "agreement"))),
        (PANEL, [said(0, "b"), said(1, "a"), said(2, "a")], [[0, 1, 2]], Outcome(1, Answer("a", 2 / 3, "agreement"))),
        (PANEL, [failed(0), said(1, "a"), said(2, "a")], [[0, 1, 2]], Outcome(1, Answer("a", 1.0, "agreement"))),
        (PANEL, [said(0, "a"), said(1, "b"), failed(2)], [[0, 1, 2]], Outcome(0, Answer(None, 0.5, "agreement"))),
        (PANEL, [said(0, 1), said(1, True), said(2, True)], [[0, 1, 2]], Outcome(1, Answer(True, 2 / 3, "agreement"))),
        (
            PANEL,
            [said(0, ["x"]), said(1, ["x"]), said(2, [])],
            [[0, 1, 2]],
            Outcome(0, Answer(["x"], 2 / 3, "agreement")),
        ),
        (PANEL, [failed(0), failed(1), failed(2, "auth")], [[0, 1, 2]], failed(2, "auth")),
        (Panel((NOBODY, NOBODY)), [], [], None),
        # nested
        (Cascade((Panel((A, B)), C), (0.8,)), [said(0, "a"), said(1, "b"), said(2, "c")], [[0, 1], [2]], said(2, "c")),
        (
            Cascade((Panel((A, B)), C), (0.8,)),
            [said(0, "a"), said(1, "a"), None],
            [[0, 1]],
            Outcome(0, Answer("a", 1.0, "agreement")),
        ),
        (Cascade((Fallback((A, B)), C), (0.8,)), [failed(0), said(1, "b", 0.9), None], [[0], [1]], said(1, "b", 0.9)),
        (
            Panel((Fallback((A, B)), C)),
            [failed(0), said(1, "x"), said(2, "x")],
            [[0, 2], [1]],
            Outcome(1, Answer("x", 1.0, "agreement")),
        ),
        (Fallback((Cascade((A, B), (0.8,)), C)), [failed(0), failed(1), said(2, "c")], [[0], [1], [2]], said(2, "c")),
    ],
)
def test_what_is_asked_and_what_comes_of_it(node, outcomes, steps, end):
    """Each kind of node, and nested ones, ask these seats in these steps and end like this."""
    assert follow(seated(node), outcomes) == (steps, Done(end))


def test_a_true_and_a_one_are_two_opinions():
    """Opinions that are equal but of different types do not add up."""
    _, end = follow(seated(Panel((A, B))), [said(0, 1), said(1, True)])
    assert end == Done(Outcome(0, Answer(None, 0.5, "agreement")))


def test_a_panel_waits_for_all_its_members():
    """As long as one member is open a panel asks for it, and members asked before may be named again."""
    node = seated(PANEL)
    step = advance(node, {1: said(1, "a")})
    assert [one.number for one in step.seats] == [0, 2]


def test_a_cascade_needs_a_bar_for_each_stage_but_the_last():
    """Bars and stages that do not match are no cascade."""
    with pytest.raises(ValueError, match=r"shorter|longer"):
        advance(seated(Cascade((A, B), ())), {0: LOW, 1: LOW})


# ---- seats ------------------------------------------------------------------------------------


def nodes(children):
    several = st.lists(children, min_size=1, max_size=3).map(tuple)
    return (
        several.map(Fallback)
        | several.map(Panel)
        | several.flatmap(
            lambda stages: st.lists(
                st.sampled_from([0.0, 0.5, 1.0]), min_size=len(stages) - 1, max_size=len(stages) - 1
            ).map(lambda below: Cascade(stages, tuple(below)))
        )
    )


seats = st.frozensets(st.integers(0, 5), min_size=1, max_size=3).map(Seat)
trees = st.recursive(seats | st.just(NOBODY), nodes, max_leaves=8).map(seated)


@given(trees)
def test_seats_are_numbered_in_order(node):
    """Every seat of a tree has its own number, counted from 0, and numbering again changes nothing."""
    assert [one.number for one in seats_of(node)] == list(range(len(seats_of(node))))
    assert seated(node) == node


@given(trees, st.randoms(use_true_random=False))
def test_every_row_comes_to_an_end(node, rng: random.Random):
    """However outcomes fall and in whatever order they arrive, a row ends, and no seat is asked twice or after it."""
    number_of_seats = len(seats_of(node))
    asked, waiting, known = set(), [], {}
    step = advance(node, known)
    for _ in range(number_of_seats + 1):
        if isinstance(step, Done):
            break
        new = [one for one in step.seats if one.number not in asked]
        asked.update(one.number for one in new)
        waiting += new
        assert waiting, "nothing is asked any more, and the row has not ended"
        arrived = waiting.pop(rng.randrange(len(waiting)))
        provider = rng.choice(sorted(arrived.providers))
        known[arrived.number] = rng.choice(
            [failed(provider), said(provider, "a"), said(provider, "b", 0.4), said(provider, "b", 0.9)]
        )
        step = advance(node, known)
    assert isinstance(step, Done)
    assert not waiting
    assert (step.outcome is None) is (not asked)
    if step.outcome is not None:
        assert (step.outcome.answer is None) is (step.outcome.failure is not None)
        assert step.outcome.provider in {provider for one in seats_of(node) for provider in one.providers}


@given(trees, st.randoms(use_true_random=False))
def test_an_answer_is_lost_only_to_another(node, rng: random.Random):
    """A row ends in a failure only if every seat that was asked failed."""
    known, step = {}, advance(node, {})
    while isinstance(step, Ask):
        for one in step.seats:
            provider = min(one.providers)
            known.setdefault(one.number, rng.choice([failed(provider), said(provider, "a", rng.random())]))
        step = advance(node, known)
    if step.outcome is not None and step.outcome.failure is not None:
        assert all(outcome.failure is not None for outcome in known.values())
