"""As many requests at once as a server makes use of: found by how long its replies take and what it refuses."""

from __future__ import annotations

import heapq
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchkit._logic.ramping import Ramp, Window


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
@example(able=5, most=12, spread=0.0, seed=0)  # all replies at whole seconds
@example(able=6, most=14, spread=0.0, seed=0)
def test_little_is_lost_by_it(able, most, spread, seed):
    """However long replies take, a long run never takes half as long again as with all slots from the start."""
    took, slots = serve(most, able, 1_000, ramp=Ramp(most), spread=spread, seed=seed)
    at_best, _ = serve(most, able, 1_000, spread=spread, seed=seed)
    assert took <= 1.45 * at_best
    assert all(1 <= count <= most for count in slots)


def test_replies_that_take_no_time_are_no_trouble():
    """Where the clock is too coarse to tell a request's end from its beginning, all slots are used."""
    ramp = Ramp(16)
    for now in range(200):
        ramp.replied(now, now)
    assert ramp.slots == 16


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


# ---- what is refused --------------------------------------------------------------------------------


def burst(window, sent, now, in_flight, refused):
    """So many of those in flight are refused, one after the other."""
    return [window.refused(sent, now, others) for others in range(in_flight - 1, in_flight - 1 - refused, -1)]


@given(in_flight=st.integers(2, 200), data=st.data())
def test_so_many_stay_in_flight_as_were_taken(in_flight, data):
    """All that was under way when a provider began to refuse is one event: what is left is what it took, or one."""
    refused = data.draw(st.integers(1, in_flight))
    window = Window()
    burst(window, 0.0, 1.0, in_flight, refused)
    assert window.most == max(1, in_flight - refused)


def test_what_was_added_and_refused_is_tried_ever_less():
    """A provider that takes five at once is asked for a sixth after 10 answers, then 20, and at last every 320."""
    window, waits = Window(), []
    burst(window, 0.0, 0.5, 16, 11)
    for now in range(1, 9):
        answers = 1
        while not window.taken():
            answers += 1
        waits.append(answers)
        assert window.most == 6
        assert window.refused(now, now, 5)
        assert window.most == 5
    assert waits == [10, 20, 40, 80, 160, 320, 320, 320]


def test_a_request_that_is_refused_alone_came_too_fast():
    """What was taken beside others before is not too many now: the window opens and leaves it to the pace."""
    window = Window()
    burst(window, 0.0, 0.5, 16, 11)
    assert not window.refused(1.0, 1.0, 2)
    assert window.most == 10
    assert not window.refused(2.0, 2.0, 0)
    assert not any(window.refused(3.0, 3.0, 15) for _ in range(10))
    assert window.refused(4.0, 4.0, 15)
    assert window.most == 15
    assert repr(window) == "Window(15)"


def test_an_overload_answer_delays_what_would_be_added():
    """Calm is when nothing is refused and nobody is overloaded."""
    window = Window()
    assert window.overloaded(0.0, 1.0, 8, for_all=True)
    for _ in range(9):
        assert not window.taken()
    assert not window.overloaded(2.0, 2.0, 4, for_all=False)
    assert [window.taken() for _ in range(10)] == [False] * 9 + [True]
    assert window.most == 5


def test_a_window_never_runs_out_of_numbers():
    """However long nothing is refused, or everything, there is a number of slots."""
    window = Window()
    window.overloaded(0.0, 1.0, 2, for_all=True)
    for _ in range(20_000):
        window.taken()
    for now in range(2_000):
        window.refused(now, now, 0)
    assert window.most >= 1
    assert repr(window)
