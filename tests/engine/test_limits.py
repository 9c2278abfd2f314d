"""A gate lets no more in than its strictest user allows, first come first served, and forgets nothing too early."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects.ratelimits import Allowance, Allowances
from batchkit._engine.limits import Gate, gate_of
from batchkit.records import Limits


def gate(*members):
    made = Gate()
    for limits in members:
        made.join(limits)
    return made


def nobody():
    raise AssertionError("nobody was to be woken")


def test_one_budget_has_one_gate():
    """Equal budgets share a gate, whatever object names them."""
    name = object()
    assert gate_of(("u", "k", name)) is gate_of(("u", "k", name))
    assert gate_of(("u", "k", name)) is not gate_of(("u", "other", name))


def test_the_strictest_member_holds_while_it_is_there():
    """A stricter user narrows the gate for all, and what the others allow holds again when it leaves."""
    strict = Limits(1)
    narrow = gate(Limits(3), strict)
    assert [narrow.enter(0.0, 0, lambda: None) for _ in range(2)] == [0, math.inf]
    narrow.quit(strict)
    assert [narrow.enter(0.0, 0, lambda: None) for _ in range(3)] == [0, 0, math.inf]


def test_a_member_that_joins_late_lets_what_is_in_flight_finish():
    """When the slots become fewer than what is in flight, none is given until enough have come back."""
    wide = gate(Limits(3))
    assert [wide.enter(0.0, 0, nobody) for _ in range(3)] == [0, 0, 0]
    wide.join(Limits(2))
    wide.leave(1.0, 0, 0, nobody)
    assert wide.enter(1.0, 0, lambda: None) == math.inf
    assert wide.in_flight == 2


def test_free_slots_go_to_those_who_waited_longest():
    """Those who found the gate full are woken in the order in which they came, each once."""
    woken = []
    full = gate(Limits(1))

    def waker(name):
        def wake():
            woken.append(name)
            full.enter(1.0, 0, wake)

        return wake

    full.enter(0.0, 0, nobody)
    for name in "abc":
        wake = waker(name)
        assert full.enter(0.0, 0, wake) == math.inf
        assert full.enter(0.0, 0, wake) == math.inf
    for _ in range(4):
        full.leave(1.0, 0, 0, nobody)
    assert woken == ["a", "b", "c"]
    assert full.in_flight == 0


def test_one_who_has_nothing_to_send_hands_the_slot_on():
    """A slot that the first in the queue has no use for goes to the next."""
    woken = []
    full = gate(Limits(1))
    full.enter(0.0, 0, nobody)
    for name in "ab":
        full.enter(0.0, 0, lambda name=name: woken.append(name))
    full.leave(1.0, 0, 0, nobody)
    assert woken == ["a", "b"]


def test_whoever_leaves_and_waits_first_keeps_its_slot():
    """The slot stays free for the one who left when its own turn is next, and is handed on if it has no use for it."""
    woken = []
    full = gate(Limits(1))
    mine, other = (lambda: woken.append("mine")), (lambda: woken.append("other"))
    full.enter(0.0, 0, mine)
    full.enter(0.0, 0, mine)
    full.enter(0.0, 0, other)
    full.leave(1.0, 0, 0, mine)
    assert (woken, full.in_flight) == ([], 0)
    full.hand_on()
    assert woken == ["other", "mine"]


def test_a_pause_holds_for_all_and_is_never_shortened():
    """Nothing goes before the latest moment that was asked for."""
    paused = gate(Limits(2))
    paused.pause(10.0)
    paused.pause(5.0)
    assert paused.enter(4.0, 0, nobody) == 6.0
    assert paused.enter(10.0, 0, nobody) == 0.0


def test_whom_a_limit_holds_back_goes_before_who_comes_later():
    """Rows that wait for a limit go in the order in which they came, and tokens given back are theirs."""
    woken = []
    first, other = lambda: woken.append("first"), lambda: woken.append("other")
    busy = gate(Limits(10, tpm=6000.0))
    assert busy.enter(0.0, 600, other) == 0
    assert busy.enter(0.0, 600, first) == pytest.approx(6.0)
    assert busy.enter(1.0, 1, other) == pytest.approx(5.0)  # 4.11 s for so little, were it alone
    busy.leave(2.0, 600, 100, other, 0.0)
    assert woken == ["first"]
    assert busy.enter(2.0, 1, other) > 0
    assert busy.enter(2.0, 600, first) == 0


def test_who_quits_keeps_nobody_waiting():
    """A run that ends while it waits for a limit gives up its turn at once."""
    gone, other, limits = lambda: None, lambda: None, Limits(10, tpm=6000.0)
    busy = gate(Limits(10), limits)
    assert busy.enter(0.0, 400, gone) == 0
    assert busy.enter(0.0, 6000, gone) > 60
    assert busy.enter(5.0, 1, other) > 50
    busy.quit(limits, gone)
    busy.join(limits)
    assert busy.enter(5.0, 1, other) == 0


def leaves(gate, limits, mine):
    gate.quit(limits, mine)


def gives_up(gate, limits, mine):
    gate.forget(mine)


@pytest.mark.parametrize("go", [leaves, gives_up])
def test_those_behind_a_turn_that_is_given_up_ask_again(go):
    """Whoever waits for another's turn, or under another's limit, is woken when that one goes."""
    woken, limits = [], Limits(10, tpm=6000.0)
    busy = gate(Limits(10), limits)
    gone, other = lambda: woken.append("gone"), lambda: woken.append("other")
    assert busy.enter(0.0, 400, gone) == 0
    assert busy.enter(0.0, 6000, gone) > 60
    assert busy.enter(5.0, 1, other) > 50
    assert busy.held_by == "another run's turn"
    go(busy, limits, gone)
    assert woken == ["other"]


def test_limits_that_the_provider_raises_are_felt_at_once():
    """Whoever waits under a limit that is told anew asks again, and does not sleep out the old wait."""
    woken = []
    told = gate(Limits(10))
    told.hear(0.0, said(limit=2))
    assert told.enter(0.0, 0, nobody) == 0
    assert told.enter(0.0, 0, lambda: woken.append("told")) > 10
    told.hear(1.0, said(limit=6_000))
    assert woken == ["told"]


def test_nobody_who_has_quit_is_kept():
    """A budget outlives its runs: the one that waited for a slot and ended is not held on to."""
    limits, wake = Limits(1), lambda: None
    full = gate(Limits(1), limits)
    full.enter(0.0, 0, nobody)
    full.enter(0.0, 0, wake)
    full.quit(limits, wake)
    assert not full._queue
    assert not full._waiting


def test_who_has_nothing_to_send_any_more_keeps_nobody_waiting():
    """The turn of one that does not ask again passes to the next."""
    busy = gate(Limits(10, rpm=60.0))
    assert busy.enter(0.0, 0, nobody) == 0
    gone, next_one = lambda: None, lambda: None
    assert busy.enter(0.0, 0, gone) == pytest.approx(1.0)
    assert busy.enter(0.5, 0, next_one) == pytest.approx(0.5)
    assert busy.enter(1.0, 0, next_one) > 0
    assert busy.enter(1.1, 0, next_one) == 0


@pytest.mark.parametrize("limits", [Limits(10, rpm=60.0), Limits(10, tpm=60.0)])
def test_a_budget_remembers_what_left_while_it_was_not_limited(limits):
    """Those who come back with a limit still find what they sent, whoever used the budget in between."""
    kept = gate(limits)
    now = 0.0
    for _ in range(60):
        while wait := kept.enter(now, 1.0, nobody):
            now += wait
        kept.leave(now, 1.0, 1.0, nobody)
    kept.quit(limits)
    free = Limits(10)
    kept.join(free)
    assert kept.enter(now, 1.0, nobody) == 0
    kept.leave(now, 1.0, 1.0, nobody)
    kept.quit(free)
    kept.join(limits)
    left = []
    for _ in range(3):
        while wait := kept.enter(now, 1.0, nobody):
            now += wait
        left.append(now)
        kept.leave(now, 1.0, 1.0, nobody)
    assert left[0] >= 60
    assert left[2] >= 62 - 1e-6


@given(
    slots=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    moves=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=80),
)
def test_in_flight_never_exceeds_the_slots(slots, moves):
    """Whatever the order of entries and exits, in flight is what was let in, never more than the strictest allows."""
    busy = gate(*[Limits(count) for count in slots])
    held = [0, 0, 0]
    for who, enters in moves:
        if enters:
            held[who] += busy.enter(0.0, 0, lambda: None) == 0
        elif held[who]:
            held[who] -= 1
            busy.leave(0.0, 0, 0, lambda: None)
        assert busy.in_flight == sum(held) <= min(slots)


def test_a_gate_shows_its_state():
    """The repr says what is in flight and what the limits are."""
    shown = gate(Limits(4, rpm=60.0))
    shown.enter(0.0, 0, nobody)
    assert "1 of 4 in flight" in repr(shown)
    assert "60 per minute" in repr(shown)


def test_overload_halves_the_slots_and_calm_gives_them_back():
    """Lowered, a budget lets half as many in flight; it recovers one by one, never beyond its limits."""
    gate = Gate()
    gate.join(Limits(max_concurrency=8))

    def room():
        entered = 0
        while gate.enter(0.0, 0.0, lambda: None) == 0.0:
            entered += 1
        for _ in range(entered):
            gate.leave(0.0, 0.0, 0.0, lambda: None)
        return entered

    seen = [room()]
    for at in range(4):
        assert not gate.overloaded(at, at, for_all=False)
        assert gate.overloaded(at, at, for_all=True)
        seen.append(room())
    for _ in range(9):
        for _ in range(10):
            gate.taken(10.0)
        seen.append(room())
    assert seen == [8, 4, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8]


def test_what_left_before_the_slots_were_halved_halves_them_no_further():
    """However many of those in flight come back with an overload, it is one step for all of them."""
    wide = gate(Limits(64))
    assert [wide.overloaded(sent, 1.0 + sent, for_all=True) for sent in (0.0, 0.1, 0.9)] == [True, False, False]
    assert wide.slots == 32
    assert wide.overloaded(1.0, 2.0, for_all=True)
    assert wide.slots == 16


def test_slots_that_nobody_asked_for_are_taken_up_step_by_step():
    """A usual number of slots begins with half of them; one that a user gave holds at once, and the stricter holds."""
    usual = Limits(16, is_usual=True)
    assert gate(Limits(16)).slots == 16
    assert gate(usual).slots == 8
    assert gate(usual, Limits(64)).slots == 8
    assert gate(usual, Limits(3)).slots == 3
    assert gate(Limits(1, is_usual=True)).slots == 1


def serve(gate, now, rounds, seconds):
    """Keep a gate full for so many rounds of requests that take so long each; the time then."""
    for _ in range(rounds):
        sent = 0
        while gate.enter(now, 0, lambda: None) == 0:
            sent += 1
        for _ in range(sent):
            gate.timed(now, now + seconds(sent))
        for _ in range(sent):
            gate.leave(now + seconds(sent), 0, None, lambda: None)
        now += seconds(sent)
    return now


def test_what_a_budget_learned_about_its_slots_is_kept():
    """Who comes back to a server finds the number of slots that paid off, and a user's own number meanwhile."""
    usual = Limits(16, is_usual=True)
    learned = gate(usual)
    now = serve(learned, 0.0, 20, seconds=lambda sent: 1.0)
    assert learned.slots == 16
    learned.quit(usual)
    own = Limits(5)
    learned.join(own)
    assert learned.slots == 5
    learned.quit(own)
    learned.join(usual)
    assert learned.slots == 16
    slow = gate(usual)
    serve(slow, now, 20, seconds=lambda sent: 0.1 * sent)
    assert slow.slots < 8


def said(limit=None, remaining=None, tokens=None):
    return Allowances(
        requests=Allowance(limit, remaining) if limit or remaining is not None else None,
        tokens=None if tokens is None else Allowance(tokens),
    )


def leave_at_once(gate, now, count, wake=nobody):
    return sum(gate.enter(now, 0, wake) == 0 for _ in range(count))


def test_limits_that_the_provider_tells_hold():
    """A limit on requests that stands in a reply's headers holds from then on, and so does one on tokens."""
    told = gate(Limits(100))
    assert leave_at_once(told, 0.0, 10) == 10
    assert told.tpm is None
    told.hear(0.1, said(limit=600, tokens=6_000))
    assert told.tpm == 6_000
    assert leave_at_once(told, 0.1, 50) <= 10
    assert 0 < told.enter(0.1, 0, nobody) <= 1


@pytest.mark.parametrize(("own", "told", "most"), [(120, 6000, 2), (6000, 120, 2)])
def test_of_ones_own_limit_and_the_told_one_the_stricter_holds(own, told, most):
    """What a provider tells makes the user's limit stricter, never laxer."""
    both = gate(Limits(100, rpm=own))
    both.hear(0.0, said(limit=told))
    assert leave_at_once(both, 0.0, 50) <= most


def test_what_others_used_up_is_gone():
    """Where a provider says that little is left, no more than that goes; where nothing is, all wait until some is."""
    shared = gate(Limits(100))
    shared.hear(0.0, said(limit=6000, remaining=3))
    assert leave_at_once(shared, 0.0, 50, wake=lambda: None) == 3
    shared.hear(10.0, said(limit=60, remaining=0))
    assert shared.enter(10.0, 0, nobody) == pytest.approx(1.0)


@pytest.mark.parametrize(("reset", "pause"), [(59.0, 59.0), (600.0, 600.0), (601.0, 0.0), (7_200.0, 0.0)])
def test_no_answer_makes_rows_wait_beyond_their_deadline(reset, pause):
    """Where nothing is left for hours by an answer's headers, the next request finds out what holds."""
    told = gate(Limits(100, deadline=600.0))
    told.hear(0.0, Allowances(requests=Allowance(remaining=0, reset=reset)))
    assert told.enter(0.0, 0, nobody) == pause


def test_refusals_slow_down_and_calm_gives_the_speed_back():
    """Requests that came too fast lower the pace of all on the budget, and it rises again while none is refused."""
    quick = gate(Limits(1000))
    assert leave_at_once(quick, 0.0, 100) == 100
    quick.refused(0.0, 1.0)
    for _ in range(100):
        quick.leave(1.0, 0, None, nobody)
    assert quick.enter(1.0, 0, nobody) > 0
    slow = leave_at_once(quick, 2.0, 200)
    assert 0 < slow < 100
    now = 2.0
    for _ in range(30):
        now += 1.0
        rose = leave_at_once(quick, now, 1000, wake=lambda: None)
        for _ in range(quick.in_flight):
            quick.taken(now)
            quick.leave(now, 0, None, nobody)
    assert rose > 2 * slow


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (Limits(9, rpm=60), "60 requests a minute"),
        (Limits(9, tpm=600), "600 tokens a minute"),
        (Limits(9), "a pause it asked for"),
    ],
)
def test_a_gate_names_what_holds_it(limits, what):
    """Whoever has to wait can be told which limit it is."""
    held = gate(limits)
    assert held.enter(0.0, 600, nobody) == 0.0
    if limits.rpm is limits.tpm is None:
        held.pause(5.0)
    assert held.enter(0.0, 600, nobody) > 0
    assert held.held_by == what
