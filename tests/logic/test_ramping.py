"""As many requests at once as a server makes use of, found by how long its replies take."""

from __future__ import annotations

import heapq
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchkit._logic.ramping import Ramp


def serve(most, able, rows, *, ramp=None, spread=0.0, seed=0):
    """Ask a server that works on ``able`` requests at once; the seconds taken, and the slots at each reply."""
    rng, free, replies, slots = Random(seed), [0.0] * able, [], []
    now, left = 0.0, rows
    while left or replies:
        while left and len(replies) < (most if ramp is None else ramp.slots):
            ends = max(now, heapq.heappop(free)) + rng.lognormvariate(0, spread)
            heapq.heappush(free, ends)
            heapq.heappush(replies, (ends, now))
            left -= 1
        now, sent = replies[0]
        if ramp is not None and len(replies) >= ramp.slots:
            ramp.replied(sent, now)
        heapq.heappop(replies)
        slots.append(most if ramp is None else ramp.slots)
    return now, slots


@pytest.mark.parametrize("most", [1, 2, 3, 4, 8, 16, 50])
def test_a_server_that_keeps_up_gets_all(most):
    """Half of the slots at first, all of them after a round or two, and never more."""
    ramp = Ramp(most)
    assert ramp.slots == max(1, most // 2)
    _, slots = serve(most, 64, 200, ramp=ramp)
    assert max(slots) == ramp.slots == most
    assert slots.index(most) <= 2 * most


@pytest.mark.parametrize(("able", "most"), [(1, 2), (1, 16), (2, 16), (4, 16), (3, 50), (8, 64)])
def test_requests_do_not_pile_up_in_a_server(able, most):
    """In the long run about as many are in flight as the server works on at once, or twice as many."""
    _, slots = serve(most, able, 1_000, ramp=Ramp(most))
    later = slots[500:]
    assert able * 0.7 <= sum(later) / len(later) <= able * 2.5


@settings(max_examples=60)
@given(able=st.integers(1, 40), most=st.integers(1, 64), spread=st.floats(0, 0.4), seed=st.integers(0, 2**32))
def test_little_is_lost_by_it(able, most, spread, seed):
    """However long replies take, a long run takes hardly longer than with all slots from the start."""
    took, slots = serve(most, able, 1_000, ramp=Ramp(most), spread=spread, seed=seed)
    at_best, _ = serve(most, able, 1_000, spread=spread, seed=seed)
    assert took <= 1.35 * at_best
    assert all(1 <= count <= most for count in slots)


def test_a_slow_first_reply_decides_nothing():
    """A model that is loaded for the first request does not look as if more at once were of no use."""
    ramp = Ramp(8)
    assert [ramp.replied(0.0, at) for at in (30.0, 30.1, 30.2, 30.3)] == [False, False, False, True]
    assert ramp.slots == 8
    for _ in range(8):
        ramp.replied(30.3, 31.3)
    assert ramp.slots == 8


def test_a_server_that_became_faster_is_found_out():
    """Where more at once did not pay, it is tried again after a while."""
    ramp = Ramp(8)
    serve(8, 1, 100, ramp=ramp)
    assert ramp.slots <= 2
    now = 1e6
    for _ in range(300):
        now += 1
        ramp.replied(now, now + 1)
    assert ramp.slots == 8


def test_what_left_before_says_nothing_about_the_slots_of_now():
    """A reply counts for the number of slots under which its request left."""
    ramp = Ramp(4)
    for at in (1.0, 1.1, 1.2):
        ramp.replied(0.0, at)
    assert ramp.slots == 4
    for _ in range(50):
        ramp.replied(-1.0, 100.0)
    assert ramp.slots == 4
    for _ in range(4):
        ramp.replied(2.0, 3.0)
    assert repr(ramp) == "Ramp(4 of 4)"
