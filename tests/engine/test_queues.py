"""Where units wait: in row order, those asked again first, and those asked later in order of their moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchkit._engine.queues import Later, Line, Ticket


def test_units_leave_in_row_order_and_those_asked_again_before_them():
    """A line gives out its units in order; a ticket that came back goes first."""
    line = Line([])
    for unit in range(3):
        line.add(unit, 0)
    first = line.pop()
    line.again.append(first)
    assert line.head() == first.unit == 0
    assert [ticket.unit for ticket in line.drain()] == [0, 1, 2]
    assert line.head() is None


def test_only_what_was_asked_before_can_run_out_of_time():
    """A unit not asked yet has all the time there is; one that was asked has its deadline."""
    line = Line([])
    line.add(0, 0)
    assert line.ends_at(10.0) == float("inf")
    ticket = line.pop()
    ticket.first_at = 5.0
    line.again.append(ticket)
    assert line.ends_at(10.0) == 15.0


@given(st.lists(st.floats(0, 100), max_size=30), st.floats(0, 100))
def test_later_gives_back_what_is_due_in_order(moments, now):
    """Exactly the tickets whose moment has come are given back, the earliest first."""
    later, line = Later(), Line([])
    for unit, at in enumerate(moments):
        later.add(at, line, Ticket(unit, 0))
    assert later.next_at == min(moments, default=None)
    due = [moments[ticket.unit] for _, ticket in later.due(now)]
    assert due == sorted(at for at in moments if at <= now)
    assert later.next_at == min((at for at in moments if at > now), default=None)


def test_a_line_can_be_emptied():
    """Draining one line leaves the others' tickets."""
    later, one, two = Later(), Line([]), Line([])
    for unit in range(6):
        later.add(unit, one if unit % 2 else two, Ticket(unit, 0))
    assert sorted(ticket.unit for ticket in later.drain(one)) == [1, 3, 5]
    assert [ticket.unit for _, ticket in later.due(10)] == [0, 2, 4]
